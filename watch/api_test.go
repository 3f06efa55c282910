package watch

import (
	"context"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
)

func service(name, clusterIP string) *corev1.Service {
	return &corev1.Service{ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: name},
		Spec: corev1.ServiceSpec{ClusterIP: clusterIP}}
}

func node(name, addr string) *corev1.Node {
	return &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name}, Status: corev1.NodeStatus{
		Addresses: []corev1.NodeAddress{{Type: corev1.NodeInternalIP, Address: addr}}}}
}

// cluster is a fake API server that, like the real one, can select a Node by
// its name.
func cluster(objects ...runtime.Object) *fake.Clientset {
	client := fake.NewClientset(objects...)
	gvr := corev1.SchemeGroupVersion.WithResource("nodes")
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		name, found := action.(clienttesting.ListActionImpl).GetListRestrictions().Fields.RequiresExactMatch("metadata.name")
		if !found {
			return false, nil, nil
		}
		obj, err := client.Tracker().List(gvr, corev1.SchemeGroupVersion.WithKind("Node"), "")
		if err != nil {
			return true, nil, err
		}
		list := obj.(*corev1.NodeList)
		list.Items = slices.DeleteFunc(list.Items, func(n corev1.Node) bool { return n.Name != name })
		return true, list, nil
	})
	client.PrependWatchReactor("nodes", func(action clienttesting.Action) (bool, watch.Interface, error) {
		selected := action.(clienttesting.WatchActionImpl)
		w, err := client.Tracker().Watch(gvr, "", selected.ListOptions)
		if err != nil {
			return true, nil, err
		}
		name, _ := selected.GetWatchRestrictions().Fields.RequiresExactMatch("metadata.name")
		return true, watch.Filter(w, func(e watch.Event) (watch.Event, bool) {
			n, isNode := e.Object.(*corev1.Node)
			return e, !isNode || n.Name == name
		}), nil
	})
	return client
}

// start runs an API source and returns its sink and its log.
func start(t *testing.T, client *fake.Clientset) (*recorder, *observer.ObservedLogs) {
	core, logs := observer.New(zapcore.InfoLevel)
	ctx, cancel := context.WithCancel(t.Context())
	sink := newRecorder()
	done := make(chan error)
	go func() {
		a := &API{Client: client, Node: "a", ListNodes: 50 * time.Millisecond, Log: zap.New(core)}
		done <- a.Run(ctx, sink)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
	return sink, logs
}

func TestAPI(t *testing.T) {
	slice := endpointSlice("IPv4")
	unlabelled := endpointSlice("IPv4")
	unlabelled.Name, unlabelled.Labels = "lost", nil
	client := cluster(service("web", "10.96.0.10"), &slice, &unlabelled, node("a", "192.0.2.1"), node("b", "192.0.2.2"))
	sink, logs := start(t, client)

	calls := sink.await(t, "synced")
	if calls[len(calls)-1] != "synced" {
		t.Errorf("Synced is not the last call: %q", calls)
	}
	slices.Sort(calls)
	expect(t, calls, "delete slice shop/lost", "set node a [192.0.2.1]", "set node b [192.0.2.2]",
		"set service shop/web [10.96.0.10]", "set slice shop/web-1 of shop/web", "synced")

	services := client.CoreV1().Services("shop")
	_, err := services.Create(t.Context(), service("new", "10.96.0.11"), metav1.CreateOptions{})
	must(t, err)
	sink.await(t, "set service shop/new [10.96.0.11]")
	must(t, services.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	sink.await(t, "delete service shop/web")
	must(t, client.DiscoveryV1().EndpointSlices("shop").Delete(t.Context(), "web-1", metav1.DeleteOptions{}))
	sink.await(t, "delete slice shop/web-1")

	nodes := client.CoreV1().Nodes()
	_, err = nodes.Create(t.Context(), node("c", "192.0.2.3"), metav1.CreateOptions{})
	must(t, err)
	sink.await(t, "set node c [192.0.2.3]")
	must(t, nodes.Delete(t.Context(), "b", metav1.DeleteOptions{}))
	expect(t, sink.await(t, "delete node b"), "delete node b")
	if n := logs.FilterField(zap.String("name", "lost")).Len(); n != 1 {
		t.Errorf("%d lines about the slice without a label, want 1", n)
	}
}

func TestAPIAsksOnlyForWhatItReads(t *testing.T) {
	client := cluster()
	sink, _ := start(t, client)
	sink.await(t, "synced")
	asked := map[string]bool{}
	for _, action := range client.Actions() {
		if list, ok := action.(clienttesting.ListActionImpl); ok {
			r := list.GetListRestrictions()
			asked[strings.Join([]string{list.GetResource().Resource, r.Labels.String(), r.Fields.String()}, "|")] = true
		}
	}
	for _, want := range []string{
		"services|!service.kubernetes.io/service-proxy-name|spec.clusterIP!=None",
		"endpointslices|!service.kubernetes.io/headless|",
		"nodes||metadata.name=a",
		"nodes||",
	} {
		if !asked[want] {
			t.Errorf("no list of %s among %v", want, asked)
		}
	}
}

func TestAPIWithoutTheRightToListNodes(t *testing.T) {
	client := cluster(node("a", "192.0.2.1"), node("b", "192.0.2.2"))
	asked := make(chan struct{})
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if !action.(clienttesting.ListActionImpl).GetListRestrictions().Fields.Empty() {
			return false, nil, nil
		}
		select {
		case asked <- struct{}{}:
		case <-t.Context().Done():
		}
		return true, nil, apierrors.NewForbidden(schema.GroupResource{Resource: "nodes"}, "", nil)
	})
	sink, logs := start(t, client)
	<-asked
	expect(t, sink.await(t, "synced"), "set node a [192.0.2.1]", "synced")
	<-asked
	<-asked
	if n := logs.FilterMessageSnippet("forbidden").Len(); n != 1 {
		t.Errorf("%d warnings after the second list, want 1", n)
	}
}

func TestAPIWaitsForTheListOfNodes(t *testing.T) {
	client := cluster(node("b", "192.0.2.2"))
	broken := 1
	client.PrependReactor("list", "nodes", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if action.(clienttesting.ListActionImpl).GetListRestrictions().Fields.Empty() && broken > 0 {
			broken--
			return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
		}
		return false, nil, nil
	})
	sink, _ := start(t, client)
	expect(t, sink.await(t, "synced"), "set node b [192.0.2.2]", "synced")
}

func TestDeleted(t *testing.T) {
	for label, obj := range map[string]any{
		"object":    service("web", ""),
		"last seen": cache.DeletedFinalStateUnknown{Key: "shop/web", Obj: service("web", "")},
		"key only":  cache.DeletedFinalStateUnknown{Key: "shop/web"},
	} {
		if got, ok := deleted(obj); !ok || got.String() != "shop/web" {
			t.Errorf("%s: got %v, %v", label, got, ok)
		}
	}
	if got, ok := deleted("nonsense"); ok {
		t.Errorf("a string has the name %v", got)
	}
}
