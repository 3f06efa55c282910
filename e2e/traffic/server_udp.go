package traffic

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

func (s *Server) listenUDP(in Namespace, port uint16) error {
	socket, err := listenAny(in, UDP, port)
	if err != nil {
		return err
	}
	if err := socket.set(unix.SOL_IPV6, unix.IPV6_RECVPKTINFO, 1); err != nil {
		_ = socket.Close()
		return fmt.Errorf("learn which address a datagram asked: %w", err)
	}
	s.serve(socket, func() { s.answerDatagrams(socket) })
	return nil
}

// answerDatagrams answers each datagram from the address it was sent to, which the routing would not choose on a
// host with several addresses.
func (s *Server) answerDatagrams(socket *socket) {
	data, control := make([]byte, 2048), make([]byte, 256)
	for {
		var n int
		var peer unix.Sockaddr
		err := socket.wait(func(fd int) (err error) {
			_, n, _, peer, err = unix.Recvmsg(fd, data, control, 0)
			return err
		})
		if errors.Is(err, os.ErrClosed) {
			return
		}
		if err != nil { // An ICMP error about an earlier answer.
			continue
		}
		answer := Answer{Host: s.name, Client: addrPort(peer)}.String() + "\n"
		source := askedAddress(control[:n])
		// A caller that cannot be answered is the caller's affair, as it is with any datagram.
		_ = socket.control(func(fd int) error { return unix.Sendmsg(fd, []byte(answer), source, peer, 0) })
	}
}

// askedAddress makes the control message that sends from the address which a received one names. The device is
// left out: the routing decides by which way the answer goes.
func askedAddress(received []byte) []byte {
	messages, err := unix.ParseSocketControlMessage(received)
	if err != nil {
		return nil
	}
	for _, m := range messages {
		if m.Header.Level == unix.SOL_IPV6 && m.Header.Type == unix.IPV6_PKTINFO && len(m.Data) >= 20 {
			info := unix.Inet6Pktinfo{Addr: [16]byte(m.Data[:16])}
			if info.Addr[0] == 0xfe && info.Addr[1]&0xc0 == 0x80 { // A link-local address says nothing without its link.
				info.Ifindex = binary.NativeEndian.Uint32(m.Data[16:20])
			}
			return unix.PktInfo6(&info)
		}
	}
	return nil
}
