package traffic

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Proto is a transport protocol, in lower case.
type Proto string

// The protocols of Services.
const (
	TCP  Proto = "tcp"
	UDP  Proto = "udp"
	SCTP Proto = "sctp"
)

// Target is what a client calls.
type Target struct {
	Proto Proto
	Addr  netip.AddrPort
}

func (t Target) String() string { return string(t.Proto) + " " + t.Addr.String() }

// socket is a non-blocking socket that the runtime's poller waits for.
type socket struct {
	*os.File
	raw  syscall.RawConn
	icmp icmpError
}

// openSocket opens a socket in a namespace. SCTP is of the one-to-one style, which reads and writes as TCP does.
func openSocket(in Namespace, domain int, proto Proto) (*socket, error) {
	kind, number := unix.SOCK_STREAM, unix.IPPROTO_TCP
	switch proto {
	case UDP:
		kind, number = unix.SOCK_DGRAM, unix.IPPROTO_UDP
	case SCTP:
		number = unix.IPPROTO_SCTP
	}
	var fd int
	err := in.Do(func() (err error) {
		fd, err = unix.Socket(domain, kind|unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC, number)
		return err
	})
	if err != nil {
		return nil, fmt.Errorf("open %s socket: %w", proto, err)
	}
	return newSocket(fd, string(proto))
}

func newSocket(fd int, name string) (*socket, error) {
	file := os.NewFile(uintptr(fd), name)
	raw, err := file.SyscallConn()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("use %s socket: %w", name, err), file.Close())
	}
	return &socket{File: file, raw: raw}, nil
}

// control runs one system call on the socket without waiting.
func (s *socket) control(call func(fd int) error) error {
	var err error
	if e := s.raw.Control(func(fd uintptr) { err = call(int(fd)) }); e != nil {
		return e
	}
	return err
}

// wait runs call whenever the socket can be read, until it returns something else than EAGAIN. The error is
// call's, os.ErrDeadlineExceeded or os.ErrClosed.
func (s *socket) wait(call func(fd int) error) error {
	var err error
	e := s.raw.Read(func(fd uintptr) bool {
		err = call(int(fd))
		return !errors.Is(err, unix.EAGAIN)
	})
	switch {
	case e == nil:
		return err
	case errors.Is(e, os.ErrDeadlineExceeded):
		return e
	}
	return os.ErrClosed // The poller's own error for this has no name outside of the runtime.
}

func (s *socket) set(level, option, value int) error {
	return s.control(func(fd int) error { return unix.SetsockoptInt(fd, level, option, value) })
}

// bind takes a port on every address of the socket's family, so that the kernel goes on choosing the address.
func (s *socket) bind(domain int, port uint16) error {
	every := netip.IPv4Unspecified()
	if domain == unix.AF_INET6 {
		every = netip.IPv6Unspecified()
	}
	return s.control(func(fd int) error { return unix.Bind(fd, sockaddr(netip.AddrPortFrom(every, port))) })
}

// errNotSent marks an error of the local kernel before any packet left, such as having no route.
type errNotSent struct{ error }

func (e errNotSent) Unwrap() error { return e.error }

// connect connects within a time-out. Its error is os.ErrDeadlineExceeded, an errNotSent, or what came back.
func (s *socket) connect(to netip.AddrPort, timeout time.Duration) error {
	err := s.control(func(fd int) error { return unix.Connect(fd, sockaddr(to)) })
	if err == nil {
		return nil
	}
	if !errors.Is(err, unix.EINPROGRESS) {
		return errNotSent{err}
	}
	if err := s.SetWriteDeadline(time.Now().Add(timeout)); err != nil {
		return errNotSent{err}
	}
	defer s.SetWriteDeadline(time.Time{})
	waited := s.raw.Write(func(fd uintptr) (done bool) {
		done, err = s.progress(int(fd))
		return done
	})
	if waited != nil {
		return waited
	}
	return err
}

// progress says whether a connect that was begun has come to an end, and to which. The kernel may hold an ICMP error
// back as long as it has hopes of its own: then only the error queue knows of it.
func (s *socket) progress(fd int) (done bool, err error) {
	polled := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	if n, err := unix.Poll(polled, 0); err != nil || n == 0 {
		return false, nil
	}
	number, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ERROR)
	if err != nil {
		return true, err
	}
	if number != 0 {
		return true, unix.Errno(number)
	}
	if _, err := unix.Getpeername(fd); err == nil {
		return true, nil
	}
	if s.readICMP(fd); s.icmp.errno != 0 {
		return true, s.icmp.errno
	}
	return false, nil
}

func (s *socket) local() netip.AddrPort {
	var at netip.AddrPort
	_ = s.control(func(fd int) error {
		name, err := unix.Getsockname(fd)
		if err == nil {
			at = addrPort(name)
		}
		return err
	})
	return at
}

func domainOf(a netip.Addr) int {
	if a.Is4() {
		return unix.AF_INET
	}
	return unix.AF_INET6
}

func sockaddr(at netip.AddrPort) unix.Sockaddr {
	if at.Addr().Is4() {
		return &unix.SockaddrInet4{Addr: at.Addr().As4(), Port: int(at.Port())}
	}
	return &unix.SockaddrInet6{Addr: at.Addr().As16(), Port: int(at.Port())}
}

// addrPort reads an address of the kernel; IPv4 on an IPv6 socket comes out as IPv4.
func addrPort(name unix.Sockaddr) netip.AddrPort {
	switch name := name.(type) {
	case *unix.SockaddrInet4:
		return netip.AddrPortFrom(netip.AddrFrom4(name.Addr), uint16(name.Port))
	case *unix.SockaddrInet6:
		return netip.AddrPortFrom(netip.AddrFrom16(name.Addr).Unmap(), uint16(name.Port))
	}
	return netip.AddrPort{}
}
