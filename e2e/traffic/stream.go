package traffic

import (
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// StreamOptions say what a stream of datagrams does.
type StreamOptions struct {
	To    Target        // UDP
	Port  uint16        // the one source port
	Every time.Duration // between two datagrams
}

// StreamSeen is what a stream has seen.
type StreamSeen struct {
	Sent, Answered int
	Last           string // the host that gave the last answer, empty without one
}

// Lost is the number of datagrams that were not answered.
func (s StreamSeen) Lost() int { return max(0, s.Sent-s.Answered) }

// Stream sends datagrams from one fixed port and counts the answers.
type Stream struct {
	socket  *socket
	options StreamOptions
	stop    chan struct{}
	once    sync.Once
	sending sync.WaitGroup
	reading sync.WaitGroup

	mu       sync.Mutex
	seen     StreamSeen
	draining bool // nothing is sent any more
}

// StartStream begins a stream, which runs until it is stopped.
func (c *Client) StartStream(o StreamOptions) (*Stream, error) {
	domain := domainOf(o.To.Addr.Addr())
	s, err := openSocket(c.in, domain, UDP)
	if err != nil {
		return nil, err
	}
	if domain == unix.AF_INET6 {
		err = s.set(unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil {
		err = s.bind(domain, o.Port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take source port %d: %w", o.Port, err), s.Close())
	}
	stream := &Stream{socket: s, options: o, stop: make(chan struct{})}
	stream.sending.Go(stream.send)
	stream.reading.Go(stream.read)
	return stream, nil
}

// send does not connect the socket: a pending ICMP error would then take the next datagram's place.
func (s *Stream) send() {
	tick := time.NewTicker(s.options.Every)
	defer tick.Stop()
	for {
		s.mu.Lock()
		s.seen.Sent++
		s.mu.Unlock()
		_ = s.socket.control(func(fd int) error { return unix.Sendto(fd, []byte("hello\n"), 0, sockaddr(s.options.To.Addr)) })
		select {
		case <-s.stop:
			return
		case <-tick.C:
		}
	}
}

func (s *Stream) read() {
	buffer := make([]byte, 2048)
	for {
		var n int
		var from unix.Sockaddr
		err := s.socket.wait(func(fd int) (err error) {
			n, from, err = unix.Recvfrom(fd, buffer, 0)
			return err
		})
		if errors.Is(err, os.ErrClosed) || errors.Is(err, os.ErrDeadlineExceeded) {
			return
		}
		if err != nil || addrPort(from) != s.options.To.Addr {
			continue
		}
		if answer, err := ParseAnswer(string(buffer[:n])); err == nil {
			s.answered(answer.Host)
		}
	}
}

func (s *Stream) answered(host string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.seen.Answered++
	s.seen.Last = host
	if s.draining && s.seen.Answered >= s.seen.Sent {
		_ = s.socket.SetReadDeadline(time.Now())
	}
}

// Seen is what the stream has seen up to now.
func (s *Stream) Seen() StreamSeen {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.seen
}

// Stop sends no more, gives the last datagrams Patience to be answered and returns what the stream has seen.
func (s *Stream) Stop() StreamSeen {
	s.once.Do(func() {
		close(s.stop)
		s.sending.Wait()
		s.drain()
		s.reading.Wait()
		_ = s.socket.Close()
	})
	return s.Seen()
}

func (s *Stream) drain() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.draining = true
	patience := Patience
	if s.seen.Answered >= s.seen.Sent {
		patience = 0
	}
	_ = s.socket.SetReadDeadline(time.Now().Add(patience))
}
