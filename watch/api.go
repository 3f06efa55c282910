package watch

import (
	"context"
	"slices"
	"sync"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/fields"
	coreinformers "k8s.io/client-go/informers/core/v1"
	discoveryinformers "k8s.io/client-go/informers/discovery/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	// otherProxyLabel, with any value, gives a Service to another proxy.
	otherProxyLabel = "service.kubernetes.io/service-proxy-name"
	// headlessLabel marks the slices of headless Services.
	headlessLabel = corev1.IsHeadlessService
)

// API is the Source that watches a cluster's API server.
type API struct {
	Client kubernetes.Interface
	// Node is the name of this node. Its Node object is watched, those of the
	// others are only listed now and then.
	Node string
	// Resync is how often every object is handed over again, 0 for never.
	Resync time.Duration
	// ListNodes is how often the Nodes are listed, 0 for every five minutes.
	ListNodes time.Duration
	Log       *zap.Logger
}

// Run implements Source. While the API server cannot be reached it goes on
// trying.
func (a *API) Run(ctx context.Context, sink state.Sink) error {
	w := &apiWatch{API: a, sink: sink}
	informers := []cache.SharedIndexInformer{w.services(), w.slices(), w.ownNode()}
	if w.err != nil {
		return w.err
	}

	var running sync.WaitGroup
	defer running.Wait()
	for _, informer := range informers {
		running.Go(func() { informer.RunWithContext(ctx) })
	}
	listed := make(chan struct{})
	running.Go(func() { a.watchNodes(ctx, sink, func() { close(listed) }) })

	if !cache.WaitForCacheSync(ctx.Done(), w.synced...) {
		return nil
	}
	select {
	case <-listed:
	case <-ctx.Done():
		return nil
	}
	sink.Synced()
	<-ctx.Done()
	return nil
}

// apiWatch is one run of an API.
type apiWatch struct {
	*API
	sink state.Sink
	// synced tell that a handler has been given every initial object.
	synced []cache.InformerSynced
	err    error
}

func (w *apiWatch) services() cache.SharedIndexInformer {
	informer := coreinformers.NewFilteredServiceInformer(w.Client, metav1.NamespaceAll, w.Resync, nil,
		func(o *metav1.ListOptions) {
			o.LabelSelector = "!" + otherProxyLabel
			o.FieldSelector = "spec.clusterIP!=" + corev1.ClusterIPNone
		})
	handle(w, informer, events[*corev1.Service]{
		strip: stripService,
		set: func(s *corev1.Service) []string {
			out, wrong := convertService(s)
			w.sink.SetService(out)
			return wrong
		},
		delete: func(n state.Name) { w.sink.DeleteService(n) },
	})
	return informer
}

func (w *apiWatch) slices() cache.SharedIndexInformer {
	informer := discoveryinformers.NewFilteredEndpointSliceInformer(w.Client, metav1.NamespaceAll, w.Resync, nil,
		func(o *metav1.ListOptions) { o.LabelSelector = "!" + headlessLabel })
	handle(w, informer, events[*discoveryv1.EndpointSlice]{
		strip: stripSlice,
		set: func(s *discoveryv1.EndpointSlice) []string {
			out, wrong := convertSlice(s)
			if out == nil {
				w.sink.DeleteSlice(state.Name{Namespace: s.Namespace, Name: s.Name})
			} else {
				w.sink.SetSlice(out)
			}
			return wrong
		},
		delete: func(n state.Name) { w.sink.DeleteSlice(n) },
	})
	return informer
}

func (w *apiWatch) ownNode() cache.SharedIndexInformer {
	informer := coreinformers.NewFilteredNodeInformer(w.Client, w.Resync, nil,
		func(o *metav1.ListOptions) {
			o.FieldSelector = fields.OneTermEqualSelector(metav1.ObjectNameField, w.Node).String()
		})
	handle(w, informer, events[*corev1.Node]{
		strip: stripNode,
		set: func(n *corev1.Node) []string {
			out, wrong := convertNode(n)
			w.sink.SetNode(out)
			return wrong
		},
		delete: func(n state.Name) { w.sink.DeleteNode(n.Name) },
	})
	return informer
}

// events says what to do with the objects of one kind.
type events[T metav1.Object] struct {
	strip  func(T)
	set    func(T) (wrong []string)
	delete func(state.Name)
}

// handle registers e with an informer that does not run yet.
func handle[T metav1.Object](w *apiWatch, informer cache.SharedIndexInformer, e events[T]) {
	if w.err != nil {
		return
	}
	w.err = informer.SetTransform(func(obj any) (any, error) {
		if o, ok := obj.(T); ok {
			e.strip(o)
		}
		return obj, nil
	})
	if w.err != nil {
		return
	}
	var registration cache.ResourceEventHandlerRegistration
	registration, w.err = informer.AddEventHandler(e.handler(w.Log))
	if w.err == nil {
		w.synced = append(w.synced, registration.HasSynced)
	}
}

// handler logs what is wrong with an object once, not again with each of its
// versions.
func (e events[T]) handler(log *zap.Logger) cache.ResourceEventHandler {
	reported := map[state.Name][]string{} // handlers are called one at a time
	set := func(obj any) {
		o, ok := obj.(T)
		if !ok {
			return
		}
		name := state.Name{Namespace: o.GetNamespace(), Name: o.GetName()}
		wrong := e.set(o)
		if !slices.Equal(wrong, reported[name]) {
			logProblems(log, o, wrong)
		}
		if len(wrong) > 0 {
			reported[name] = wrong
		} else {
			delete(reported, name)
		}
	}
	return cache.ResourceEventHandlerFuncs{
		AddFunc:    set,
		UpdateFunc: func(_, obj any) { set(obj) },
		DeleteFunc: func(obj any) {
			if name, ok := deleted(obj); ok {
				delete(reported, name)
				e.delete(name)
			}
		},
	}
}

// deleted returns the name of a deleted object, also where the deletion itself
// was missed and only the key is certain.
func deleted(obj any) (state.Name, bool) {
	key, err := cache.DeletionHandlingMetaNamespaceKeyFunc(obj)
	if err != nil {
		return state.Name{}, false
	}
	namespace, name, err := cache.SplitMetaNamespaceKey(key)
	return state.Name{Namespace: namespace, Name: name}, err == nil
}

func logProblems(log *zap.Logger, o metav1.Object, wrong []string) {
	if len(wrong) == 0 {
		return
	}
	log.Warn("object is not fully usable", zap.String("kind", kindOf(o)),
		zap.String("namespace", o.GetNamespace()), zap.String("name", o.GetName()), zap.Strings("problems", wrong))
}

func kindOf(o any) string {
	switch o.(type) {
	case *corev1.Service:
		return "Service"
	case *discoveryv1.EndpointSlice:
		return "EndpointSlice"
	case *corev1.Node:
		return "Node"
	}
	return ""
}
