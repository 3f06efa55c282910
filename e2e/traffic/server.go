package traffic

import (
	"context"
	"errors"
	"fmt"
	"io"
	"sync"

	"golang.org/x/sys/unix"
)

// httpPort is the TCP port on which the echo server also understands HTTP.
const httpPort = 8080

// Server is the echo server of one host.
type Server struct {
	name string
	sctp bool

	mu      sync.Mutex
	closed  bool
	open    map[io.Closer]struct{}
	serving sync.WaitGroup
}

// SCTP says whether the kernel has SCTP, so that the server answers on it too.
func (s *Server) SCTP() bool { return s.sctp }

// Serve opens the echo server of the host called name on all addresses of its namespace, on TCP, UDP and SCTP, and
// returns when every port is open. It answers each line or datagram with an Answer, from the address that was asked,
// and keeps connections open; on TCP port 8080 a GET is answered as HTTP. It serves until ctx ends or Close is called.
func Serve(ctx context.Context, name string, in Namespace, ports ...uint16) (*Server, error) {
	s := &Server{name: name, sctp: true, open: map[io.Closer]struct{}{}}
	for _, port := range ports {
		if err := s.listen(in, port); err != nil {
			return nil, errors.Join(fmt.Errorf("echo server of %s, port %d: %w", name, port, err), s.Close())
		}
	}
	context.AfterFunc(ctx, func() { _ = s.Close() })
	return s, nil
}

func (s *Server) listen(in Namespace, port uint16) error {
	if err := s.listenStream(in, TCP, port); err != nil {
		return err
	}
	if err := s.listenUDP(in, port); err != nil {
		return err
	}
	err := s.listenStream(in, SCTP, port)
	if errors.Is(err, unix.EPROTONOSUPPORT) || errors.Is(err, unix.ESOCKTNOSUPPORT) {
		s.sctp = false
		return nil
	}
	return err
}

// Close closes the ports and all connections, and returns when that is done.
func (s *Server) Close() error {
	s.mu.Lock()
	s.closed = true
	var errs []error
	for c := range s.open {
		errs = append(errs, c.Close())
	}
	clear(s.open)
	s.mu.Unlock()
	s.serving.Wait()
	return errors.Join(errs...)
}

// serve runs fn with a socket that Close closes. After Close it only closes the socket.
func (s *Server) serve(socket io.Closer, fn func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		_ = socket.Close()
		return
	}
	s.open[socket] = struct{}{}
	s.serving.Go(func() {
		fn()
		s.drop(socket)
	})
}

func (s *Server) drop(socket io.Closer) {
	s.mu.Lock()
	_, ours := s.open[socket]
	delete(s.open, socket)
	s.mu.Unlock()
	if ours {
		_ = socket.Close()
	}
}

// listenAny opens a socket for both families on one port.
func listenAny(in Namespace, proto Proto, port uint16) (*socket, error) {
	s, err := openSocket(in, unix.AF_INET6, proto)
	if err != nil {
		return nil, err
	}
	err = errors.Join(
		s.set(unix.SOL_IPV6, unix.IPV6_V6ONLY, 0),
		s.set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1),
	)
	if err == nil {
		err = s.bind(unix.AF_INET6, port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("listen on %s: %w", proto, err), s.Close())
	}
	return s, nil
}
