// Package watch turns what it sees of the outside world (the Kubernetes API, a
// folder of manifests, the node's own addresses) into calls of a state.Sink.
// It is the only door to client-go. It decides nothing about Services and
// never touches what the proxy programs.
package watch

import (
	"context"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Source hands the objects of a cluster to a sink.
type Source interface {
	// Run hands over every object there is, calls Synced once and goes on with
	// each change until the context ends, which is not an error.
	Run(context.Context, state.Sink) error
}
