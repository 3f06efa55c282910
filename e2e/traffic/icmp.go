package traffic

import (
	"encoding/binary"
	"errors"
	"net/netip"
	"unsafe"

	"golang.org/x/sys/unix"
)

// reportICMP makes the kernel report every ICMP error on the socket, also those it would only remember
// (ip(7), IP_RECVERR).
func (s *socket) reportICMP(domain int, on bool) error {
	value := 0
	if on {
		value = 1
	}
	if domain == unix.AF_INET6 {
		return s.set(unix.SOL_IPV6, unix.IPV6_RECVERR, value)
	}
	return s.set(unix.SOL_IP, unix.IP_RECVERR, value)
}

// repeatINIT makes an SCTP socket send its INIT again after half a second rather than three. An ICMP error in answer
// to an INIT that is sent inside of connect may come before connect is over, and is then forgotten; SCTP has no error
// queue. The socket option is SCTP_RTOINFO (RFC 6458, 8.1.1).
func (s *socket) repeatINIT() error {
	const level, option = unix.IPPROTO_SCTP, 0
	var info []byte
	for _, value := range []uint32{0, 500, 5000, 500} { // association, initial, maximum and minimum, in ms
		info = binary.NativeEndian.AppendUint32(info, value)
	}
	return s.control(func(fd int) error { return unix.SetsockoptString(fd, level, option, string(info)) })
}

// isICMP says whether an error is one that the kernel makes of an ICMP unreachable (icmp(7)), or a TCP reset or SCTP
// abort in answer to the first packet.
func isICMP(err error) bool {
	for _, one := range []unix.Errno{
		unix.ECONNREFUSED, unix.EHOSTUNREACH, unix.ENETUNREACH, unix.ENOPROTOOPT,
		unix.EHOSTDOWN, unix.ENONET, unix.EACCES, unix.EOPNOTSUPP,
	} {
		if errors.Is(err, one) {
			return true
		}
	}
	return false
}

// icmpError is what the error queue of a socket tells about an ICMP error.
type icmpError struct {
	errno unix.Errno
	from  netip.Addr // who sent it
}

// neighbourSilent says whether an error only means that nobody on the link answered ARP or neighbour discovery: the
// kernel then sends an ICMP host unreachable to itself, though nothing came back from the wire.
func (s *socket) neighbourSilent(err error, own netip.Addr) bool {
	if !errors.Is(err, unix.EHOSTUNREACH) {
		return false
	}
	_ = s.control(func(fd int) error {
		s.readICMP(fd)
		return nil
	})
	return own.IsValid() && s.icmp.from == own
}

// readICMP empties the error queue and remembers the last error.
func (s *socket) readICMP(fd int) {
	control := make([]byte, 512)
	for {
		_, n, _, _, err := unix.Recvmsg(fd, make([]byte, 256), control, unix.MSG_ERRQUEUE|unix.MSG_DONTWAIT)
		if err != nil {
			return
		}
		if e, ok := parseICMP(control[:n]); ok {
			s.icmp = e
		}
	}
}

// parseICMP reads the sock_extended_err of a control message and the address that follows it.
func parseICMP(control []byte) (icmpError, bool) {
	messages, err := unix.ParseSocketControlMessage(control)
	if err != nil {
		return icmpError{}, false
	}
	const head = int(unsafe.Sizeof(unix.SockExtendedErr{}))
	for _, m := range messages {
		isV4 := m.Header.Level == unix.SOL_IP && m.Header.Type == unix.IP_RECVERR
		isV6 := m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_RECVERR
		if !isV4 && !isV6 || len(m.Data) < head {
			continue
		}
		e := icmpError{errno: unix.Errno(binary.NativeEndian.Uint32(m.Data))}
		// The sockaddr begins with two octets of family and two of port; IPv6 has four of flow label before the address.
		switch at := m.Data[head:]; {
		case isV4 && len(at) >= 8:
			e.from = netip.AddrFrom4([4]byte(at[4:8]))
		case isV6 && len(at) >= 24:
			e.from = netip.AddrFrom16([16]byte(at[8:24])).Unmap()
		}
		return e, true
	}
	return icmpError{}, false
}
