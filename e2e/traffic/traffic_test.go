package traffic

import (
	"bufio"
	"context"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic/traffictest"
	"golang.org/x/sys/unix"
)

// serve starts an echo server called a1 on ports 7000 and 8080.
func serve(t *testing.T, in Namespace) *Server {
	t.Helper()
	s, err := Serve(t.Context(), "a1", in, 7000, httpPort)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close the server: %v", err)
		}
	})
	return s
}

func target(proto Proto, at string) Target {
	return Target{Proto: proto, Addr: netip.MustParseAddrPort(at)}
}

// needSCTP skips where the kernel has no SCTP.
func needSCTP(t *testing.T, s *Server, proto Proto) {
	t.Helper()
	if proto == SCTP && !s.SCTP() {
		t.Skip("this kernel has no SCTP")
	}
}

func TestCall(t *testing.T) {
	in := traffictest.New(t)
	server := serve(t, in)
	deaf(t, in, "127.0.0.1:7100")
	client := NewClient(in)
	for _, test := range []struct {
		name   string
		proto  Proto
		to     string
		want   Result
		source string
	}{
		{"tcp", TCP, "127.0.0.1:7000", OK, "127.0.0.1"},
		{"tcp, another address of the host", TCP, "127.0.0.9:7000", OK, "127.0.0.1"},
		{"tcp over IPv6", TCP, "[::1]:7000", OK, "::1"},
		{"tcp reset", TCP, "127.0.0.1:7001", Refused, ""},
		{"tcp reset over IPv6", TCP, "[::1]:7001", Refused, ""},
		{"tcp without an answer", TCP, "127.0.0.1:7100", Timeout, ""},
		{"tcp without a route", TCP, "192.0.2.1:80", "not sent (network is unreachable)", ""},
		{"udp", UDP, "127.0.0.1:7000", OK, "127.0.0.1"},
		{"udp, answered from the address asked", UDP, "127.0.0.9:7000", OK, "127.0.0.1"},
		{"udp over IPv6", UDP, "[::1]:7000", OK, "::1"},
		{"udp port unreachable", UDP, "127.0.0.1:7001", Refused, ""},
		{"udp port unreachable over IPv6", UDP, "[::1]:7001", Refused, ""},
		{"udp without an answer", UDP, "127.0.0.1:7100", Timeout, ""},
		{"udp without a route", UDP, "192.0.2.1:80", "not sent (network is unreachable)", ""},
		{"sctp", SCTP, "127.0.0.1:7000", OK, "127.0.0.1"},
		{"sctp over IPv6", SCTP, "[::1]:7000", OK, "::1"},
		{"sctp abort", SCTP, "127.0.0.1:7001", Refused, ""},
		{"sctp abort over IPv6", SCTP, "[::1]:7001", Refused, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			needSCTP(t, server, test.proto)
			got, err := client.Call(target(test.proto, test.to))
			if err != nil {
				t.Fatal(err)
			}
			if got.Result != test.want {
				t.Fatalf("result: want %q, have %q", test.want, got.Result)
			}
			if test.want == OK && (got.Answer.Host != "a1" || got.Answer.Client.Addr().String() != test.source) {
				t.Errorf("answer: want a1 seeing %s, have %s", test.source, got.Answer)
			}
			if test.want == Timeout && (got.Connect < Patience || got.Connect > 2*Patience) {
				t.Errorf("gave up after %s, want %s", got.Connect, Patience)
			}
			if test.want == Refused && got.Connect > time.Second {
				t.Errorf("refused after %s, want at once", got.Connect)
			}
		})
	}
}

// deaf occupies a port of TCP and UDP without ever answering there: the TCP listener has room for one connection,
// which is taken.
func deaf(t *testing.T, in Namespace, at string) {
	t.Helper()
	addr := netip.MustParseAddrPort(at)
	for _, proto := range []Proto{TCP, UDP} {
		s, err := openSocket(in, unix.AF_INET, proto)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = s.Close() })
		err = s.control(func(fd int) error { return unix.Bind(fd, sockaddr(addr)) })
		if err == nil && proto == TCP {
			err = s.control(func(fd int) error { return unix.Listen(fd, 0) })
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	held, attempt, err := NewClient(in).Hold(Target{TCP, addr}, 0)
	if held == nil {
		t.Fatalf("take the only place: %v %v", attempt, err)
	}
	t.Cleanup(func() { _ = held.Close() })
}

func TestCallsComeFromNewPorts(t *testing.T) {
	in := traffictest.New(t)
	serve(t, in)
	client := NewClient(in)
	seen := map[uint16]bool{}
	for _, proto := range []Proto{TCP, UDP} {
		for range 20 {
			got, err := client.Call(target(proto, "127.0.0.1:7000"))
			if err != nil || got.Result != OK {
				t.Fatal(got, err)
			}
			if port := got.Answer.Client.Port(); seen[port] {
				t.Fatalf("port %d came twice", port)
			} else {
				seen[port] = true
			}
		}
	}
}

func TestConnectedButUnanswered(t *testing.T) {
	in := traffictest.New(t)
	for name, test := range map[string]struct {
		port   uint16
		linger bool
		want   Result
	}{
		"closed": {7201, false, "connected, closed without an answer"},
		"reset":  {7202, true, "connected, reset without an answer"},
	} {
		t.Run(name, func(t *testing.T) {
			hangUp(t, in, test.port, test.linger)
			got, err := NewClient(in).Call(Target{TCP, netip.AddrPortFrom(netip.MustParseAddr("127.0.0.1"), test.port)})
			if err != nil || got.Result != test.want {
				t.Errorf("want %q, have %q, %v", test.want, got.Result, err)
			}
		})
	}
}

// hangUp accepts connections, reads a line and ends them, with a reset if that is wanted.
func hangUp(t *testing.T, in Namespace, port uint16, reset bool) {
	t.Helper()
	listener, err := listenAny(in, TCP, port)
	if err != nil {
		t.Fatal(err)
	}
	if err := listener.control(func(fd int) error { return unix.Listen(fd, 8) }); err != nil {
		t.Fatal(err)
	}
	l, err := net.FileListener(listener.File)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _, _ = l.Close(), listener.Close() })
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			_, _ = bufio.NewReader(c).ReadString('\n')
			if reset {
				_ = c.(*net.TCPConn).SetLinger(0)
			}
			_ = c.Close()
		}
	}()
}

func TestHold(t *testing.T) {
	for _, proto := range []Proto{TCP, UDP, SCTP} {
		t.Run(string(proto), func(t *testing.T) {
			in := traffictest.New(t)
			server := serve(t, in)
			needSCTP(t, server, proto)
			held, attempt, err := NewClient(in).Hold(target(proto, "127.0.0.1:7000"), 40000)
			if held == nil {
				t.Fatal(attempt, err)
			}
			for range 3 {
				state, answer := held.Say()
				if state != Alive || answer.Host != "a1" || answer.Client.Port() != 40000 {
					t.Fatalf("want an answer of a1 to port 40000, have %s %s", state, answer)
				}
			}
			if err := server.Close(); err != nil {
				t.Fatal(err)
			}
			for range 2 {
				if state, _ := held.Say(); state != Closed {
					t.Fatalf("after the server ended: want %s, have %s", Closed, state)
				}
			}
			if err := held.Close(); err != nil {
				t.Error(err)
			}
		})
	}
}

func TestHoldSilent(t *testing.T) {
	in := traffictest.New(t)
	addr := "127.0.0.1:7100"
	listener, err := listenAny(in, TCP, 7100)
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	if err := listener.control(func(fd int) error { return unix.Listen(fd, 8) }); err != nil {
		t.Fatal(err)
	}
	held, attempt, err := NewClient(in).Hold(target(TCP, addr), 0)
	if held == nil {
		t.Fatal(attempt, err)
	}
	defer held.Close()
	if state, _ := held.Say(); state != Silent {
		t.Errorf("want %s, have %s", Silent, state)
	}
}

func TestHoldRefused(t *testing.T) {
	for _, proto := range []Proto{TCP, UDP} {
		held, attempt, err := NewClient(traffictest.New(t)).Hold(target(proto, "127.0.0.1:7001"), 0)
		if held != nil || err != nil || attempt.Result != Refused {
			t.Errorf("%s: want refused, have %v, %v", proto, attempt, err)
		}
	}
}

// await polls until done or a minute has passed.
func await(t *testing.T, what string, done func() bool) {
	t.Helper()
	for end := time.Now().Add(time.Minute); !done(); {
		if time.Now().After(end) {
			t.Fatalf("never: %s", what)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

func TestLoad(t *testing.T) {
	for name, test := range map[string]struct {
		proto     Proto
		everyPort bool
	}{
		"new ports":       {TCP, false},
		"few ports":       {TCP, true},
		"few ports, udp":  {UDP, true},
		"few ports, sctp": {SCTP, true},
		"new ports, sctp": {SCTP, false},
	} {
		t.Run(name, func(t *testing.T) {
			in := traffictest.New(t)
			needSCTP(t, serve(t, in), test.proto)
			load := NewClient(in).StartLoad(LoadOptions{
				To: target(test.proto, "127.0.0.1:7000"), Rate: 200, EveryPort: test.everyPort,
			})
			await(t, "more answers than the load has ports", func() bool { return load.Seen().Answers() > 2*reusedCount })
			seen := load.Stop()
			if seen.Errors() != 0 || seen.Answered["a1"] != seen.Answers() {
				t.Errorf("want answers of a1 only, have %v, failed %v", seen.Answered, seen.Failed)
			}
			if after := load.Seen(); after.Answers() != seen.Answers() {
				t.Error("the load went on after its stop")
			}
		})
	}
}

func TestLoadCountsErrors(t *testing.T) {
	load := NewClient(traffictest.New(t)).StartLoad(LoadOptions{To: target(TCP, "127.0.0.1:7001"), Rate: 100})
	await(t, "five failures", func() bool { return load.Seen().Errors() >= 5 })
	if seen := load.Stop(); seen.Failed[Refused] != seen.Errors() || seen.Answers() != 0 {
		t.Errorf("want refused only, have %v, answered %v", seen.Failed, seen.Answered)
	}
}

func TestStream(t *testing.T) {
	in := traffictest.New(t)
	server := serve(t, in)
	stream, err := NewClient(in).StartStream(StreamOptions{
		To: target(UDP, "127.0.0.1:7000"), Port: 40053, Every: 5 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	await(t, "ten answers", func() bool { return stream.Seen().Answered >= 10 })
	if err := server.Close(); err != nil {
		t.Fatal(err)
	}
	before := stream.Seen().Sent
	await(t, "ten more datagrams", func() bool { return stream.Seen().Sent >= before+10 })
	seen := stream.Stop()
	if seen.Last != "a1" || seen.Lost() < 9 || seen.Lost() > seen.Sent-10 {
		t.Errorf("want the datagrams lost that were sent after the end of a1, have %+v", seen)
	}
}

func TestStreamLosesNothingAtItsEnd(t *testing.T) {
	in := traffictest.New(t)
	serve(t, in)
	begun := time.Now()
	stream, err := NewClient(in).StartStream(StreamOptions{To: target(UDP, "127.0.0.1:7000"), Port: 40053, Every: time.Hour})
	if err != nil {
		t.Fatal(err)
	}
	if seen := stream.Stop(); seen.Sent != 1 || seen.Lost() != 0 {
		t.Errorf("want one datagram and its answer, have %+v", seen)
	}
	if took := time.Since(begun); took > Patience {
		t.Errorf("took %s although everything was answered", took)
	}
}

func TestHTTP(t *testing.T) {
	in := traffictest.New(t)
	serve(t, in)
	client := NewClient(in)
	transport := &http.Transport{DialContext: func(_ context.Context, _, at string) (net.Conn, error) {
		return client.Dial(target(TCP, at))
	}}
	defer transport.CloseIdleConnections()
	for range 2 {
		response, err := (&http.Client{Transport: transport}).Get("http://127.0.0.1:8080/any")
		if err != nil {
			t.Fatal(err)
		}
		body, _ := io.ReadAll(response.Body)
		_ = response.Body.Close()
		if _, err := ParseAnswer(string(body)); response.StatusCode != 200 || err != nil {
			t.Errorf("have status %d, body %q", response.StatusCode, body)
		}
	}
}

func TestParseAnswer(t *testing.T) {
	good := Answer{Host: "a1", Client: netip.MustParseAddrPort("[fd00::1]:4")}
	if have, err := ParseAnswer(good.String() + "\n"); err != nil || have != good {
		t.Errorf("want %v, have %v, %v", good, have, err)
	}
	for _, line := range []string{"", "a1", "a1 10.0.0.1", "a1 10.0.0 1", "a1 10.0.0.1 x", "a1 10.0.0.1 1 2"} {
		if _, err := ParseAnswer(line); err == nil {
			t.Errorf("%q was taken", line)
		} else if line != "" && !strings.Contains(err.Error(), line) {
			t.Errorf("error %q does not name the line %q", err, line)
		}
	}
}
