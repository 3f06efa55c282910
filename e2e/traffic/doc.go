// Package traffic is what the hosts of a scenario say to each other: an echo server that tells who was reached and
// from which address, and clients that measure what a caller sees over TCP, UDP and SCTP. It starts no process and
// knows nothing of Services. Sockets are opened through a Namespace and are used from any thread afterwards.
package traffic

// Namespace runs fn on a thread inside one network namespace. Only opening a socket happens there.
type Namespace interface {
	Do(fn func() error) error
}
