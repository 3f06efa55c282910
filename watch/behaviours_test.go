package watch

import (
	"context"
	"net/netip"
	"reflect"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// TestS1WhatIsNoServiceIsHandedOver: whether a Service counts is decided where
// its meaning is, so that one that becomes an alias of a name goes away there.
func TestS1WhatIsNoServiceIsHandedOver(t *testing.T) {
	alias := service("alias", "10.96.0.9")
	alias.Spec.Type, alias.Spec.ExternalName = corev1.ServiceTypeExternalName, "example.org"
	for _, in := range []*corev1.Service{alias, service("empty", "")} {
		out, wrong := convertService(in)
		if out.Type != string(in.Spec.Type) || len(wrong) > 0 {
			t.Errorf("%s: got %+v, %q", in.Name, out, wrong)
		}
	}
}

// TestSelectors compares what a folder leaves out with what the API server is
// asked to leave out.
func TestSelectors(t *testing.T) {
	for name, c := range map[string]struct {
		object metav1.Object
		want   bool
	}{
		"S2 no label":                      {labelled(service("a", "10.96.0.1"), "app", "web"), true},
		"S2 another proxy's":               {labelled(service("a", "10.96.0.1"), "service.kubernetes.io/service-proxy-name", "other"), false},
		"S2 the label with an empty value": {labelled(service("a", "10.96.0.1"), "service.kubernetes.io/service-proxy-name", ""), false},
		"S3 headless":                      {service("a", "None"), false},
		"S3 without an address yet":        {service("a", ""), true},
		"S4 the slice of a headless one":   {labelled(sliceOf("web"), "service.kubernetes.io/headless", ""), false},
		"S4 another slice":                 {sliceOf("web"), true},
	} {
		t.Run(name, func(t *testing.T) {
			if got := selected(c.object); got != c.want {
				t.Errorf("selected: %t", got)
			}
		})
	}
}

func labelled(o metav1.Object, key, value string) metav1.Object {
	labels := o.GetLabels()
	if labels == nil {
		labels = map[string]string{}
	}
	labels[key] = value
	o.SetLabels(labels)
	return o
}

func sliceOf(service string) *discoveryv1.EndpointSlice {
	s := endpointSlice("IPv4")
	s.Labels[discoveryv1.LabelServiceName] = service
	return &s
}

// TestRequests holds the selectors of the watches, which follow the lists.
func TestRequests(t *testing.T) {
	client := cluster()
	sink, _ := start(t, client)
	sink.await(t, "synced")
	asked := map[string]bool{}
	for _, action := range client.Actions() {
		if w, ok := action.(clienttesting.WatchActionImpl); ok {
			r := w.GetWatchRestrictions()
			asked[strings.Join([]string{w.GetResource().Resource, r.Labels.String(), r.Fields.String()}, "|")] = true
		}
	}
	for behaviour, want := range map[string]string{
		"S2, S3": "services|!service.kubernetes.io/service-proxy-name|spec.clusterIP!=None",
		"S4":     "endpointslices|!service.kubernetes.io/headless|",
		"S8":     "nodes||metadata.name=a",
	} {
		if !asked[want] {
			t.Errorf("%s: no watch of %s among %v", behaviour, want, asked)
		}
	}
	if asked["nodes||"] {
		t.Error("S8: every node's heartbeats are watched")
	}
}

// TestS2LabelComesAndGoes has the API server's part played by deletions and
// additions, as its watch with a selector sends them.
func TestS2LabelComesAndGoes(t *testing.T) {
	client := cluster(service("web", "10.96.0.10"))
	sink, _ := start(t, client)
	sink.await(t, "synced")
	services := client.CoreV1().Services("shop")
	must(t, services.Delete(t.Context(), "web", metav1.DeleteOptions{}))
	expect(t, sink.await(t, "delete service shop/web"), "delete service shop/web")
	_, err := services.Create(t.Context(), service("web", "10.96.0.10"), metav1.CreateOptions{})
	must(t, err)
	expect(t, sink.await(t, "set service shop/web [10.96.0.10]"), "set service shop/web [10.96.0.10]")
}

func TestSlicesThatDoNotCount(t *testing.T) {
	with := func(family discoveryv1.AddressType, labels map[string]string) discoveryv1.EndpointSlice {
		s := endpointSlice(family, discoveryv1.Endpoint{Addresses: []string{"10.244.1.11"}})
		s.Labels = labels
		return s
	}
	web := map[string]string{"kubernetes.io/service-name": "web"}
	for name, c := range map[string]struct {
		in    discoveryv1.EndpointSlice
		wrong string
	}{
		"S5 no label":          {with("IPv4", nil), "kubernetes.io/service-name"},
		"S5 an empty label":    {with("IPv4", map[string]string{"kubernetes.io/service-name": ""}), "kubernetes.io/service-name"},
		"S6 names":             {with("FQDN", web), ""},
		"S6 an unknown family": {with("IPv5", web), "IPv5"},
		"S6 no family":         {with("", web), "addressType"},
	} {
		t.Run(name, func(t *testing.T) {
			out, wrong := convertSlice(&c.in)
			text := strings.Join(wrong, "; ")
			if out != nil || !strings.Contains(text, c.wrong) || (c.wrong == "") != (text == "") {
				t.Errorf("got %+v, %q, want problem %q", out, text, c.wrong)
			}
		})
	}
	for family, want := range map[discoveryv1.AddressType]state.Family{"IPv4": state.IPv4, "IPv6": state.IPv6} {
		s := endpointSlice(family)
		if out, _ := convertSlice(&s); out == nil || out.Family != want {
			t.Errorf("S6: %s: %+v", family, out)
		}
	}
}

func TestS5IsLoggedOnce(t *testing.T) {
	lost := endpointSlice("IPv4")
	lost.Labels = nil
	client := cluster(&lost)
	sink, logs := start(t, client)
	sink.await(t, "synced")
	changed := lost.DeepCopy()
	changed.Endpoints = []discoveryv1.Endpoint{{Addresses: []string{"10.244.1.11"}}}
	_, err := client.DiscoveryV1().EndpointSlices("shop").Update(t.Context(), changed, metav1.UpdateOptions{})
	must(t, err)
	sink.await(t, "delete slice shop/web-1")
	if n := logs.FilterLevelExact(zapcore.WarnLevel).FilterField(zap.String("kind", "EndpointSlice")).Len(); n != 1 {
		t.Errorf("%d lines, want 1", n)
	}
}

// TestS7NothingUnreadIsKept: an informer keeps what the functions leave.
func TestS7NothingUnreadIsKept(t *testing.T) {
	meta := metav1.ObjectMeta{
		Namespace: "shop", Name: "web",
		ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
		OwnerReferences: []metav1.OwnerReference{{Name: "x"}},
		Annotations:     map[string]string{"kubectl.kubernetes.io/last-applied-configuration": "{}"},
		Labels:          map[string]string{"app": "web"},
	}
	s := corev1.Service{ObjectMeta: *meta.DeepCopy()}
	e := discoveryv1.EndpointSlice{ObjectMeta: *meta.DeepCopy()}
	n := corev1.Node{ObjectMeta: *meta.DeepCopy(), Status: corev1.NodeStatus{Images: []corev1.ContainerImage{{SizeBytes: 1}}}}
	stripService(&s)
	stripSlice(&e)
	stripNode(&n)
	for kind, m := range map[string]metav1.ObjectMeta{"Service": s.ObjectMeta, "EndpointSlice": e.ObjectMeta, "Node": n.ObjectMeta} {
		if m.Name != "web" || len(m.ManagedFields)+len(m.OwnerReferences)+len(m.Annotations)+len(m.Labels) > 0 {
			t.Errorf("%s: %+v", kind, m)
		}
	}
	if len(n.Status.Images) > 0 {
		t.Error("Node: images are kept")
	}
}

func TestS14AppProtocolDoesNotCount(t *testing.T) {
	plain, named := service("web", "10.96.0.10"), service("web", "10.96.0.10")
	plain.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}}
	named.Spec.Ports = []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, AppProtocol: new("kubernetes.io/h2c")}}
	a, _ := convertService(plain)
	b, _ := convertService(named)
	if !reflect.DeepEqual(a, b) {
		t.Errorf("%+v\n%+v", a, b)
	}
	s, w := endpointSlice("IPv4"), endpointSlice("IPv4")
	w.Ports[0].AppProtocol = new("http")
	c, _ := convertSlice(&s)
	d, _ := convertSlice(&w)
	if !reflect.DeepEqual(c, d) {
		t.Errorf("%+v\n%+v", c, d)
	}
}

func TestEndpoints(t *testing.T) {
	conditions := func(ready, serving, terminating *bool) discoveryv1.EndpointConditions {
		return discoveryv1.EndpointConditions{Ready: ready, Serving: serving, Terminating: terminating}
	}
	yes, no := new(true), new(false)
	at := func(addresses ...string) discoveryv1.Endpoint { return discoveryv1.Endpoint{Addresses: addresses} }
	one := netip.MustParseAddr("10.244.1.11")
	for name, c := range map[string]struct {
		in   discoveryv1.Endpoint
		want []state.Endpoint
	}{
		"S15 the first address counts":      {at("10.244.1.11", "10.244.1.12"), []state.Endpoint{{Addr: one, Ready: true, Serving: true}}},
		"S15 no address":                    {at(), nil},
		"S15 leading zeros":                 {at("010.244.001.011"), []state.Endpoint{{Addr: one, Ready: true, Serving: true}}},
		"S22 no conditions":                 {at("10.244.1.11"), []state.Endpoint{{Addr: one, Ready: true, Serving: true}}},
		"S22 ready is nil, others are not":  {discoveryv1.Endpoint{Addresses: []string{"10.244.1.11"}, Conditions: conditions(nil, no, no)}, []state.Endpoint{{Addr: one, Ready: true}}},
		"S22 serving is nil, not ready":     {discoveryv1.Endpoint{Addresses: []string{"10.244.1.11"}, Conditions: conditions(no, nil, nil)}, []state.Endpoint{{Addr: one, Serving: true}}},
		"S22 terminating":                   {discoveryv1.Endpoint{Addresses: []string{"10.244.1.11"}, Conditions: conditions(no, yes, yes)}, []state.Endpoint{{Addr: one, Serving: true, Terminating: true}}},
		"S22 ready and terminating is kept": {discoveryv1.Endpoint{Addresses: []string{"10.244.1.11"}, Conditions: conditions(yes, yes, yes)}, []state.Endpoint{{Addr: one, Ready: true, Serving: true, Terminating: true}}},
	} {
		t.Run(name, func(t *testing.T) {
			s := endpointSlice("IPv4", c.in)
			out, wrong := convertSlice(&s)
			if !reflect.DeepEqual(out.Endpoints, c.want) || len(wrong) > 0 {
				t.Errorf("got %+v, %q, want %+v", out.Endpoints, wrong, c.want)
			}
		})
	}
	six := endpointSlice("IPv6", at("FD00:0244:0000:0000:0000:0000:0000:0011"))
	if out, _ := convertSlice(&six); len(out.Endpoints) != 1 || out.Endpoints[0].Addr.String() != "fd00:244::11" {
		t.Errorf("S15: IPv6: %+v", out.Endpoints)
	}
}

func TestS13PortsWithoutNameOrNumber(t *testing.T) {
	s := endpointSlice("IPv4")
	s.Ports = []discoveryv1.EndpointPort{
		{Port: new(int32(1))}, {Name: new("a")}, {Name: new("b"), Port: new(int32(0))}, {Name: new(""), Port: new(int32(80))},
	}
	out, wrong := convertSlice(&s)
	if want := []state.SlicePort{{Protocol: state.TCP, Port: 80}}; !slices.Equal(out.Ports, want) || len(wrong) > 0 {
		t.Errorf("got %+v, %q, want %+v", out.Ports, wrong, want)
	}
}

func TestS94TriggerTime(t *testing.T) {
	const annotation = "endpoints.kubernetes.io/last-change-trigger-time"
	for text, want := range map[string]time.Time{
		"2026-01-02T03:04:05Z":           time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC),
		"2026-01-02T03:04:05.000000006Z": time.Date(2026, 1, 2, 3, 4, 5, 6, time.UTC),
		"yesterday":                      {},
		"":                               {},
	} {
		s := endpointSlice("IPv4")
		s.Annotations = map[string]string{annotation: text, "other": "x"}
		stripSlice(&s)
		if out, wrong := convertSlice(&s); !out.Triggered.Equal(want) || len(wrong) > 0 {
			t.Errorf("%q: got %v, %q, want %v", text, out.Triggered, wrong, want)
		}
	}
}

// TestS90SyncedWaitsForEveryList has one list fail while the others are there.
func TestS90SyncedWaitsForEveryList(t *testing.T) {
	const web, slice, node1 = "set service shop/web [10.96.0.10]", "set slice shop/web-1 of shop/web", "set node a [192.0.2.1]"
	for resource, others := range map[string][]string{
		"services":       {slice, node1},
		"endpointslices": {web, node1},
		"nodes":          {web, slice},
	} {
		t.Run(resource, func(t *testing.T) {
			object := endpointSlice("IPv4")
			client := cluster(service("web", "10.96.0.10"), &object, node("a", "192.0.2.1"))
			var works atomic.Bool
			client.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				if works.Load() {
					return false, nil, nil
				}
				return true, nil, apierrors.NewInternalError(context.DeadlineExceeded)
			})
			sink, _ := start(t, client)
			var calls []string
			for _, call := range others {
				if !slices.Contains(calls, call) {
					calls = append(calls, sink.await(t, call)...)
				}
			}
			works.Store(true)
			if slices.Contains(calls, "synced") {
				t.Errorf("synced before the list: %q", calls)
			}
			calls = append(calls, sink.await(t, "synced")...)
			for _, call := range []string{web, slice, node1} {
				if i := slices.Index(calls, call); i < 0 || i > slices.Index(calls, "synced") {
					t.Errorf("%q is not before synced: %q", call, calls)
				}
			}
		})
	}
}
