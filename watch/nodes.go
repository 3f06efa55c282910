package watch

import (
	"context"
	"math/rand/v2"
	"reflect"
	"time"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/tools/pager"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	listNodesEvery = 5 * time.Minute
	// The pause after a failed list doubles from the first to the second.
	listRetryMin = time.Second
	listRetryMax = time.Minute
)

// watchNodes lists the Nodes now and then and hands over what changed, except
// this node itself. A watch would be told of every heartbeat of every node, on
// every node. It calls listed after the first list, or when listing turns out
// to be forbidden.
func (a *API) watchNodes(ctx context.Context, sink state.Sink, listed func()) {
	known := map[string]*state.ClusterNode{}
	first, warned, retry := true, false, listRetryMin
	for {
		pause := jitter(a.listPeriod())
		nodes, err := a.listNodes(ctx)
		switch {
		case err == nil:
			known = handOver(sink, known, nodes)
			warned, retry = false, listRetryMin
		case ctx.Err() != nil:
			return
		case apierrors.IsForbidden(err):
			if !warned {
				a.Log.Warn("listing Nodes is forbidden: addresses of other nodes are not known; allow list on nodes", zap.Error(err))
			}
			warned = true
		default:
			a.Log.Warn("listing Nodes failed", zap.Duration("retry", retry), zap.Error(err))
			pause, retry = retry, min(2*retry, listRetryMax)
		}
		if first && (err == nil || apierrors.IsForbidden(err)) {
			first = false
			listed()
		}
		if !sleep(ctx, pause) {
			return
		}
	}
}

func (a *API) listPeriod() time.Duration {
	if a.ListNodes > 0 {
		return a.ListNodes
	}
	return listNodesEvery
}

// listNodes returns all Nodes but this one. Resource version 0 lets the API
// server answer from its memory.
func (a *API) listNodes(ctx context.Context) (map[string]*state.ClusterNode, error) {
	nodes := map[string]*state.ClusterNode{}
	list := pager.New(func(ctx context.Context, o metav1.ListOptions) (runtime.Object, error) {
		return a.Client.CoreV1().Nodes().List(ctx, o)
	})
	list.PageBufferSize = 0
	err := list.EachListItem(ctx, metav1.ListOptions{ResourceVersion: "0"}, func(obj runtime.Object) error {
		if n, ok := obj.(*corev1.Node); ok && n.Name != a.Node {
			nodes[n.Name], _ = convertNode(n) // the node itself reports its problems
		}
		return nil
	})
	return nodes, err
}

// handOver tells sink what differs between two lists and returns the newer.
func handOver(sink state.Sink, old, now map[string]*state.ClusterNode) map[string]*state.ClusterNode {
	for name, n := range now {
		if !reflect.DeepEqual(old[name], n) {
			sink.SetNode(n)
		}
	}
	for name := range old {
		if now[name] == nil {
			sink.DeleteNode(name)
		}
	}
	return now
}

// jitter returns d and up to a fifth more, so that nodes that started together
// do not ask together for ever.
func jitter(d time.Duration) time.Duration {
	return d + rand.N(d/5+1)
}

// sleep waits for d and reports whether the context is still alive.
func sleep(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
