package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// bye is the line after whose answer the server closes the connection first, so that it is the server that keeps
// the connection in TIME_WAIT and the client's port is free again.
const bye = "bye"

func (s *Server) listenStream(in Namespace, proto Proto, port uint16) error {
	listener, err := listenAny(in, proto, port)
	if err != nil {
		return err
	}
	if err := listener.control(func(fd int) error { return unix.Listen(fd, 256) }); err != nil {
		_ = listener.Close()
		if proto == SCTP && errors.Is(err, unix.ENOSYS) {
			return fmt.Errorf("listen on sctp: load the kernel module hmac, which signs its cookies: %w", err)
		}
		return fmt.Errorf("listen on %s: %w", proto, err)
	}
	s.serve(listener, func() { s.accept(listener, proto == TCP && port == httpPort) })
	return nil
}

func (s *Server) accept(listener *socket, http bool) {
	for {
		var fd int
		var peer unix.Sockaddr
		err := listener.wait(func(l int) (err error) {
			fd, peer, err = unix.Accept4(l, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
			return err
		})
		switch err {
		case nil:
			conn := os.NewFile(uintptr(fd), "connection")
			s.serve(conn, func() { s.talk(conn, addrPort(peer), http) })
		case unix.ECONNABORTED, unix.EINTR, unix.EPROTO: // The caller gave up before it was accepted.
		default:
			return
		}
	}
}

// talk answers the lines of one connection until it ends.
func (s *Server) talk(conn io.ReadWriter, peer netip.AddrPort, http bool) {
	answer := Answer{Host: s.name, Client: peer}.String() + "\n"
	in := bufio.NewReader(conn)
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return
		}
		reply, last := answer, strings.TrimSpace(line) == bye
		if http && strings.HasPrefix(line, "GET ") {
			if last, err = readHeader(in, line); err != nil {
				return
			}
			reply = httpReply(answer, last)
		}
		if _, err := io.WriteString(conn, reply); err != nil || last {
			return
		}
	}
}

// readHeader reads the rest of a request and says whether it is the connection's last.
func readHeader(in *bufio.Reader, request string) (last bool, err error) {
	last = strings.HasSuffix(strings.TrimSpace(request), "HTTP/1.0")
	for {
		line, err := in.ReadString('\n')
		if err != nil {
			return true, err
		}
		line = strings.ToLower(strings.ReplaceAll(strings.TrimSpace(line), " ", ""))
		if line == "" {
			return last, nil
		}
		last = last || line == "connection:close"
	}
}

func httpReply(text string, last bool) string {
	connection := "keep-alive"
	if last {
		connection = "close"
	}
	return fmt.Sprintf("HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nConnection: %s\r\nContent-Length: %d\r\n\r\n%s",
		connection, len(text), text)
}
