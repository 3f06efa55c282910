package scenario

import (
	"context"
	"fmt"
)

// Lab makes worlds: it owns the kernel, the API server and the proxy's binary.
type Lab interface {
	// NewWorld builds the standard topology afresh, starts the echo servers and one proxy on every node, and
	// returns when each proxy has answered its healthz with 200 and its node's kernel holds the virtual server
	// of default/kubernetes. If a proxy does not come that far the error is a *ProxyError and the world is
	// returned beside it, so that its state can be collected; with any other error the world is nil.
	NewWorld(ctx context.Context, o Options) (World, error)
	Close() error
}

// Options say what one world is for.
type Options struct {
	Name        string         // the scenario's name, for log files
	Family      Family         // the family of this run; the topology always has both
	ProxyConfig map[string]any // KubeProxyConfiguration fields to lay over the base, nil for none
}

// World is the small cluster that one run of one file lives in. Every error is the lab's or the API server's
// (an `error` of the file) unless it is a *ProxyError (a FAIL). Methods may be called from several goroutines.
type World interface {
	// Host returns the host of that name in Hosts, and nil for any other.
	Host(name string) Host
	// Proxy returns the control of a node's proxy, and nil for a host that is no node.
	Proxy(node string) Proxy

	// Apply creates or changes an object: server-side apply, forced, with strict field checking, and the status
	// subresource too when a Service or Node carries a status. A namespaced object without one is in `default`.
	Apply(ctx context.Context, object map[string]any) error
	// Delete deletes an object and returns when it is gone. Deleting what is not there is an error.
	Delete(ctx context.Context, object Ref) error
	// Events returns the reasons of the Kubernetes Events about an object.
	Events(ctx context.Context, object Ref) ([]string, error)

	// Collect writes the proxies' logs and the nodes' kernel state into a directory, which it makes.
	Collect(ctx context.Context, dir string) error
	// Close ends every process of this world, its commands' background processes too, and puts everything back.
	Close() error
}

// Ref names an object of the API. Kind is as `kubectl` takes it (service, endpointslice, node), in lower case.
type Ref struct{ Kind, Namespace, Name string }

// String is the form that the step `delete` takes.
func (r Ref) String() string {
	if r.Namespace == "" || r.Namespace == "default" {
		return r.Kind + "/" + r.Name
	}
	return r.Kind + "/" + r.Namespace + "/" + r.Name
}

// Host is one network namespace.
type Host interface {
	Name() string
	// Do runs fn on an OS thread inside the host's network namespace: sockets that fn opens belong to the host.
	// fn returns soon (it opens sockets or reads /proc/thread-self/net, it does not wait for packets), starts
	// no goroutine that opens a socket, and may be run on one thread kept for the host.
	Do(fn func() error) error
	// Command runs a line with bash in the host's namespace and returns what it printed on standard output and
	// standard error together, and its exit status. A status other than 0 is no error.
	Command(ctx context.Context, line string) (output string, exit int, err error)
}

// Proxy controls the proxy process of one node. The configuration of each start is the base, the world's
// ProxyConfig and the start's own Config, one laid over the other; what an earlier start laid over is forgotten.
type Proxy interface {
	// Start starts the process and returns when it runs, without waiting for health. A running proxy is an error.
	Start(ctx context.Context, o ProxyOptions) error
	// Stop sends TERM and returns when the process has ended; *ProxyError if that takes more than 10 s (it is
	// killed then). Stopping what does not run is an error.
	Stop(ctx context.Context) error
	// Kill sends KILL and returns when the process has ended. Killing what does not run is an error.
	Kill(ctx context.Context) error
	// Run runs the proxy's binary once to its end, with o.Args beside the usual ones.
	Run(ctx context.Context, o ProxyOptions) (output string, exit int, err error)
	// Ended returns a *ProxyError if the process has ended though nobody stopped or killed it, and nil otherwise.
	Ended() error
}

// ProxyOptions are what a step may add to a start of the proxy.
type ProxyOptions struct {
	Config map[string]any // fields to lay over
	Args   []string       // beside the usual ones
}

// ProxyError is a fault of the proxy under test: it fails the file, where any other error of the lab is an `error`.
type ProxyError struct{ Node, Fault string }

func (e *ProxyError) Error() string { return fmt.Sprintf("proxy on %s: %s", e.Node, e.Fault) }
