package traffic

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"
)

// Patience is how long a client waits for a connection, and again for an answer.
const Patience = 2 * time.Second

// Result is what became of one attempt. Other texts than these three say what else happened.
type Result string

// The results that a scenario can ask for.
const (
	OK      Result = "ok"      // a connection, and an answer on it
	Refused Result = "refused" // a reset in answer to the first packet, or an ICMP unreachable
	Timeout Result = "timeout" // nothing at all within Patience
)

// Attempt is one call and what came of it.
type Attempt struct {
	Result  Result
	Answer  Answer        // with OK
	Connect time.Duration // from the first packet to the connection or its failure; UDP: to the answer
	Total   time.Duration // from the first packet to the answer or the failure
}

// Client calls from one namespace.
type Client struct {
	in    Namespace
	ports ports
}

// NewClient makes a client whose sockets belong to a namespace.
func NewClient(in Namespace) *Client { return &Client{in: in} }

// ports gives each call a source port that no earlier one had. The range lies below the kernel's own and below the
// NodePorts, and is longer than any scenario.
type ports struct{ given atomic.Uint32 }

const firstPort, portCount = 12000, 17000

func (p *ports) next() uint16 { return uint16(firstPort + (p.given.Add(1)-1)%portCount) }

// Call opens a connection from a new source port, asks once and closes it. The error is the machine's own: there
// is no such socket here.
func (c *Client) Call(to Target) (Attempt, error) {
	conn, attempt, err := c.dial(to, 0)
	if conn == nil {
		return attempt, err
	}
	defer conn.Close()
	return conn.ask("hello"), nil
}

// Dial opens a TCP connection to be used as any other.
func (c *Client) Dial(to Target) (net.Conn, error) {
	conn, attempt, err := c.dial(to, 0)
	if err != nil {
		return nil, err
	}
	if conn == nil {
		return nil, fmt.Errorf("%s: %s", to, attempt.Result)
	}
	defer conn.Close() // FileConn keeps a duplicate.
	return net.FileConn(conn.File)
}

// call is a connection and its attempt so far.
type call struct {
	*socket
	proto Proto
	begun time.Time
	Attempt
	lines *bufio.Reader
}

// dial connects from a source port, a new one if that is 0. The call is nil if the attempt ended or failed.
func (c *Client) dial(to Target, port uint16) (*call, Attempt, error) {
	for tries := 0; ; tries++ {
		source := port
		if port == 0 {
			source = c.ports.next()
		}
		conn, attempt, err := c.dialFrom(to, source)
		if port == 0 && portTaken(err) && tries < portCount {
			continue
		}
		return conn, attempt, err
	}
}

// portTaken says whether an attempt came to nothing because its source port is in use.
func portTaken(err error) bool {
	return errors.Is(err, unix.EADDRINUSE) || errors.Is(err, unix.EADDRNOTAVAIL)
}

func (c *Client) dialFrom(to Target, port uint16) (*call, Attempt, error) {
	domain := domainOf(to.Addr.Addr())
	s, err := c.open(to, domain, port)
	if err != nil {
		return nil, Attempt{}, err
	}
	begun := time.Now()
	err = s.connect(to.Addr, Patience)
	took := time.Since(begun)
	if err == nil && to.Proto != UDP {
		err = s.reportICMP(domain, false) // From here on an ICMP error is to be tolerated, as everybody does.
	}
	if err == nil {
		return &call{
			socket: s, proto: to.Proto, begun: begun, Attempt: Attempt{Connect: took}, lines: bufio.NewReader(s),
		}, Attempt{}, nil
	}
	defer s.Close()
	if portTaken(err) {
		return nil, Attempt{}, fmt.Errorf("connect from port %d to %s: %w", port, to, err)
	}
	return nil, Attempt{Result: s.result(err), Connect: took, Total: took}, nil
}

// open makes a client's socket on a source port.
func (c *Client) open(to Target, domain int, port uint16) (*socket, error) {
	s, err := openSocket(c.in, domain, to.Proto)
	if err != nil {
		return nil, err
	}
	if domain == unix.AF_INET6 {
		err = s.set(unix.SOL_IPV6, unix.IPV6_V6ONLY, 1)
	}
	if err == nil && to.Proto == TCP {
		err = s.set(unix.SOL_SOCKET, unix.SO_REUSEADDR, 1) // A port that was closed lately may be used again.
	}
	if err == nil && to.Proto == SCTP {
		err = s.repeatINIT()
	}
	if err == nil {
		err = s.reportICMP(domain, true)
	}
	if err == nil {
		err = s.bind(domain, port)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("take source port %d for %s: %w", port, to, err), s.Close())
	}
	return s, nil
}

// result tells what an error of a first packet means to the caller.
func (s *socket) result(err error) Result {
	var unsent errNotSent
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded), errors.Is(err, unix.ETIMEDOUT):
		return Timeout
	case errors.Is(err, unix.ECONNREFUSED):
		return Refused
	case errors.As(err, &unsent):
		return Result(fmt.Sprintf("not sent (%v)", unsent.error))
	case isICMP(err) && s.neighbourSilent(err, s.local().Addr()):
		return Timeout
	case isICMP(err):
		return Refused
	}
	return Result(err.Error())
}

// ask sends one line or datagram and waits for the answer.
func (c *call) ask(line string) Attempt {
	text, err := c.exchange(line)
	c.Total = time.Since(c.begun)
	if c.proto == UDP {
		c.Connect = c.Total
	}
	if err == nil {
		c.Answer, err = ParseAnswer(text)
		c.Result = OK
	}
	if err != nil {
		c.Result = c.unanswered(err)
	}
	return c.Attempt
}

// unanswered tells what an error of a connection that was made, or of a datagram, means to the caller.
func (c *call) unanswered(err error) Result {
	switch {
	case c.proto == UDP:
		return c.result(err)
	case errors.Is(err, os.ErrDeadlineExceeded):
		return "connected, no answer"
	case errors.Is(err, io.EOF):
		return "connected, closed without an answer"
	case errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		return "connected, reset without an answer"
	}
	return Result("connected, " + err.Error())
}

// exchange sends a line and reads one. A datagram that the own node drops (EPERM) is a datagram without an answer;
// the ICMP error of a rule that rejects it comes by the same way as others.
func (c *call) exchange(line string) (string, error) {
	if err := c.SetDeadline(time.Now().Add(Patience)); err != nil {
		return "", err
	}
	_, err := io.WriteString(c.File, line+"\n")
	if err != nil && !(c.proto == UDP && errors.Is(err, unix.EPERM)) {
		return "", c.sendError(err)
	}
	text, err := c.lines.ReadString('\n')
	return strings.TrimSpace(text), err
}

// sendError keeps apart a datagram that never left from one that an ICMP error came back for.
func (c *call) sendError(err error) error {
	if c.proto == UDP && !errors.Is(err, unix.ECONNREFUSED) {
		return errNotSent{err}
	}
	return err
}
