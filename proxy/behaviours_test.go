package proxy

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/conntrack"
	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
)

var webKey = state.ServerKey{Addr: addr("10.96.0.101"), Protocol: state.TCP, Port: 80}

// settled is a proxy that has programmed web with some endpoints.
func settled(t *testing.T, endpoints ...string) *rig {
	t.Helper()
	r := newKernel().start(testOptions())
	r.proxy.Sink().SetService(service())
	r.proxy.Sink().SetSlice(slice(endpoints...))
	r.mustSettle(t)
	return r
}

func TestS90NothingIsProgrammedBeforeEverythingIsKnown(t *testing.T) {
	before := settled(t, "10.244.1.11!")
	want := before.state()

	r := before.begin(testOptions())
	if r.settle(); len(r.passes) > 0 {
		t.Error("a pass without any object")
	}
	r.proxy.Sink().SetService(service())
	if r.settle(); len(r.passes) > 0 {
		t.Error("a pass without the slices")
	}
	before.now = before.now.Add(time.Hour)
	if r.settle(); len(r.passes) > 0 || r.checks.syncs > 0 {
		t.Error("a pass because time went by")
	}
	if got := before.state(); got != want {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
	r.proxy.Sink().SetSlice(slice("10.244.1.11!"))
	r.proxy.Sink().Synced()
	if n := r.mustSettle(t); n != 0 {
		t.Errorf("%d operations, want none: everything was there", n)
	}
}

func TestS91LeastPeriodGathersChanges(t *testing.T) {
	r := settled(t, "10.244.2.11")
	r.proxy.schedule.least = time.Second
	for n := range 5 {
		r.proxy.Sink().SetSlice(slice("10.244.2.11", fmt.Sprint("10.244.2.", 20+n)))
		if r.mustSettle(t); len(r.passes) > 0 {
			t.Fatalf("a pass after %d00 ms", n+1)
		}
		r.now = r.now.Add(100 * time.Millisecond)
	}
	r.now = r.now.Add(500 * time.Millisecond)
	r.mustSettle(t)
	if len(r.passes) != 1 {
		t.Errorf("%d passes, want one", len(r.passes))
	}
	r.has(t, "-a -t 10.96.0.101:80 -r 10.244.2.24:8080 -m -w 1")
	r.lacks(t, "10.244.2.20")
}

// TestS91LongestPeriod mends what no look notices: a weight.
func TestS91LongestPeriod(t *testing.T) {
	r := settled(t, "10.244.2.11")
	r.proxy.schedule.cost = time.Minute // a large node
	// A look does not see the scheduler.
	if err := r.servers.EditServer(ipvs.Server{Key: webKey, Scheduler: "lc"}); err != nil {
		t.Fatal(err)
	}
	r.now = r.now.Add(29 * time.Second)
	r.mustSettle(t)
	r.has(t, "-A -t 10.96.0.101:80 -s lc")
	r.now = r.now.Add(time.Second)
	r.mustSettle(t)
	r.has(t, "-A -t 10.96.0.101:80 -s rr")
}

func TestS91FailedPassIsRetried(t *testing.T) {
	r := settled(t, "10.244.2.11")
	broken := errors.New("broken")
	r.servers.Fault = func(string) error { return broken }
	r.proxy.Sink().SetSlice(slice("10.244.2.11", "10.244.2.12"))
	if _, err := r.settle(); !errors.Is(err, broken) {
		t.Fatalf("error %v", err)
	}
	for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second} {
		r.now = r.now.Add(pause - time.Millisecond)
		if r.settle(); len(r.passes) > 0 {
			t.Errorf("a pass before %s", pause)
		}
		r.now = r.now.Add(time.Millisecond)
		if _, err := r.settle(); len(r.passes) != 1 || !errors.Is(err, broken) {
			t.Errorf("%d passes after %s, error %v", len(r.passes), pause, err)
		}
	}
	r.servers.Fault = nil
	r.now = r.now.Add(8 * time.Second)
	r.mustSettle(t)
	r.has(t, "-a -t 10.96.0.101:80 -r 10.244.2.12:8080 -m -w 1")
	r.mustRest(t)
}

func TestS92RestartKeepsConnectionsAndRemovesWhatIsStale(t *testing.T) {
	before := settled(t, "10.244.2.11", "10.244.2.12")
	calls := before.record()
	r := before.start(testOptions())
	only := service()
	only.ExternalIPs = nil
	r.proxy.Sink().SetService(only)
	r.proxy.Sink().SetSlice(slice("10.244.2.11", "10.244.2.12"))
	r.mustSettle(t)
	r.lacks(t, "203.0.113.2")
	if got := *calls; !slices.Equal(got, []string{"DelServer"}) {
		t.Errorf("calls that write: %q, want the removal of one virtual server", got)
	}
}

// record notes the IPVS calls that write.
func (k *kernel) record() *[]string {
	var calls []string
	k.servers.Fault = func(call string) error {
		if call != "Servers" && call != "Reals" && call != "Has" {
			calls = append(calls, call)
		}
		return nil
	}
	return &calls
}

func TestS93FlushedRulesComeBack(t *testing.T) {
	r := settled(t, "10.244.2.11")
	r.sets.Refer("KIPVS-EXTERNAL", 1) // as the rule in place does
	if _, err := r.again(); err != nil {
		t.Fatal(err)
	}
	want := r.rules.Save(state.IPv4)
	if err := r.rules.Restore(state.IPv4, "*nat\n-F PREROUTING\n-F KIPVS-PREROUTING\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	r.sets.Refer("KIPVS-EXTERNAL", 0)
	r.now = r.now.Add(lookEvery)
	r.mustSettle(t)
	if got := r.rules.Save(state.IPv4); got != want {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
}

// TestS93ALargeNodeIsLookedAtAsOften: whole passes are rare there, and looks
// come every three seconds all the same.
func TestS93ALargeNodeIsLookedAtAsOften(t *testing.T) {
	for name, damage := range map[string]func(*kernel){
		"virtual servers cleared": func(k *kernel) { k.servers.Clear() },
		"sets flushed":            func(k *kernel) { k.sets.Flush() },
	} {
		t.Run(name, func(t *testing.T) {
			r := settled(t, "10.244.1.11!")
			r.proxy.schedule.cost = time.Minute
			r.now = r.now.Add(lookEvery)
			if n := r.mustSettle(t); n != 0 || len(r.passes) != 0 {
				t.Errorf("at rest: %d operations, %d passes", n, len(r.passes))
			}
			want := r.state()
			damage(r.kernel)
			r.now = r.now.Add(lookEvery)
			r.mustSettle(t)
			if got := r.state(); got != want {
				t.Errorf("want\n%s\ngot\n%s", want, got)
			}
		})
	}
}

func TestS52AnEditIsInPlace(t *testing.T) {
	for name, change := range map[string]func(*state.Service){
		"affinity":         func(s *state.Service) { s.AffinitySeconds = 60 },
		"another time-out": func(s *state.Service) { s.AffinitySeconds = 600 },
		"no affinity":      func(s *state.Service) { s.AffinitySeconds = 0 },
		"scheduler":        func(s *state.Service) { s.Scheduler = "lc" },
		"flags":            func(s *state.Service) { s.Scheduler = "mh,mh-fallback" },
	} {
		t.Run(name, func(t *testing.T) {
			r := newKernel().start(testOptions())
			s := service()
			s.AffinitySeconds = 10800
			r.proxy.Sink().SetService(s)
			r.proxy.Sink().SetSlice(slice("10.244.2.11"))
			r.mustSettle(t)
			calls := r.record()
			edited := service()
			change(edited)
			r.proxy.Sink().SetService(edited)
			r.mustSettle(t)
			if want := slices.Repeat([]string{"EditServer"}, 4); !slices.Equal(*calls, want) {
				t.Errorf("calls that write: %q, want %q", *calls, want)
			}
		})
	}
}

func TestRenamedPortCostsNothing(t *testing.T) {
	r := newKernel().start(testOptions())
	s, e := service(), slice("10.244.1.11!")
	s.ExternalLocal, s.InternalLocal = true, true
	r.proxy.Sink().SetService(s)
	r.proxy.Sink().SetSlice(e)
	r.mustSettle(t)
	was := r.state()

	renamed, renamedSlice := service(), slice("10.244.1.11!")
	renamed.ExternalLocal, renamed.InternalLocal = true, true
	renamed.Ports[0].Name, renamedSlice.Ports[0].Name = "www", "www"
	r.proxy.Sink().SetService(renamed)
	r.proxy.Sink().SetSlice(renamedSlice)
	if n := r.mustSettle(t); n != 0 || len(r.passes) != 1 {
		t.Errorf("%d operations in %d passes, want none in one", n, len(r.passes))
	}
	if now := r.state(); now != was {
		t.Errorf("want\n%s\ngot\n%s", was, now)
	}
}

// TestThousandsOfPorts has one Service with 2,000 ports, on five addresses each.
func TestThousandsOfPorts(t *testing.T) {
	const ports = 2000
	r := newKernel().start(testOptions())
	s, e := service(), slice("10.244.1.11!", "10.244.2.11")
	s.ExternalLocal, s.Ports, e.Ports = true, nil, nil
	for n := range ports {
		name := fmt.Sprint("p", n)
		s.Ports = append(s.Ports, state.ServicePort{Name: name, Protocol: "TCP", Port: int32(n + 1), NodePort: int32(30000 + n)})
		e.Ports = append(e.Ports, state.SlicePort{Name: name, Protocol: state.TCP, Port: uint16(8000 + n)})
	}
	r.proxy.Sink().SetService(s)
	r.proxy.Sink().SetSlice(e)
	r.mustSettle(t)
	saved := r.servers.Save()
	// Cluster IP, external IP, load balancer, node address; the mark.
	if n := strings.Count(saved, "-A "); n != 5*ports {
		t.Errorf("%d virtual servers, want %d", n, 5*ports)
	}
	if marks := strings.Count(saved, "-A -f "); marks != ports {
		t.Errorf("%d virtual servers by mark, want one of its own for each port", marks)
	}
	r.mustRest(t)

	r.proxy.Sink().DeleteService(web)
	r.mustSettle(t)
	if saved := r.servers.Save(); saved != "" {
		t.Errorf("left:\n%.300s", saved)
	}
	r.lacks(t, "add KIPVS-SERVICE", "add KIPVS-SHORTCUT", "kube-ipvs0 inet")
}

func TestS70HealthCheckPortThatCannotBeOpened(t *testing.T) {
	r := newKernel().start(testOptions())
	s := service()
	s.ExternalLocal, s.HealthCheckPort = true, 31111
	r.checks.failed = map[state.Name]error{web: errors.New("listen on :31111: address already in use")}
	r.proxy.Sink().SetService(s)
	r.proxy.Sink().SetSlice(slice("10.244.1.11!"))
	r.mustSettle(t)
	if p := r.problems[web]; len(p) != 1 || p[0].Reason != "FailedToStartServiceHealthcheck" || !strings.Contains(p[0].Message, "31111") {
		t.Fatalf("problems: %v", p)
	}
	r.has(t, "-A -t 203.0.113.1:80 -s rr") // the rest of the Service goes on

	// Tried again with the next pass, whatever that is about.
	tried := r.checks.syncs
	r.proxy.Sink().SetSlice(slice("10.244.1.11!", "10.244.2.11"))
	if r.mustSettle(t); r.checks.syncs != tried+1 {
		t.Errorf("%d tries, want one", r.checks.syncs-tried)
	}
	r.checks.failed = nil
	r.proxy.Sink().SetSlice(slice("10.244.1.11!"))
	if r.mustSettle(t); len(r.problems) != 0 {
		t.Errorf("problems once it is open: %v", r.problems)
	}
}

func TestS94TriggerTimes(t *testing.T) {
	r := settled(t, "10.244.2.11")
	at := time.Unix(1_000_000, 0)
	changed := func(n int, when time.Time) *state.Slice {
		s := slice("10.244.2.11", fmt.Sprint("10.244.2.", n))
		s.Triggered = when
		return s
	}
	triggered := func() []time.Time {
		var all []time.Time
		for _, p := range r.passes {
			all = append(all, p.Triggered[state.IPv4]...)
		}
		return all
	}

	r.servers.Fault = func(string) error { return errors.New("broken") }
	r.proxy.Sink().SetSlice(changed(12, at))
	if r.settle(); len(triggered()) != 0 {
		t.Errorf("a failed pass reports %v", triggered())
	}
	r.servers.Fault = nil
	r.now = r.now.Add(time.Second)
	if r.mustSettle(t); !slices.Equal(triggered(), []time.Time{at}) {
		t.Errorf("once in force: %v, want %v", triggered(), at)
	}
	r.proxy.Sink().SetSlice(changed(13, at))
	if r.mustSettle(t); len(triggered()) != 0 {
		t.Errorf("the same annotation counts again: %v", triggered())
	}
	r.proxy.Sink().SetSlice(changed(14, at.Add(time.Second)))
	if r.mustSettle(t); len(triggered()) != 1 {
		t.Errorf("another annotation: %v", triggered())
	}
}

func TestNoLocalEndpoints(t *testing.T) {
	local := func(internal, external bool) *state.Service {
		s := service()
		s.InternalLocal, s.ExternalLocal = internal, external
		return s
	}
	for name, c := range map[string]struct {
		service   *state.Service
		endpoints []string
		internal  int
		external  int
	}{
		"S32 internal, somebody elsewhere":    {local(true, false), []string{"10.244.2.11"}, 1, 0},
		"S38 external, somebody elsewhere":    {local(false, true), []string{"10.244.2.11"}, 0, 1},
		"S39 both":                            {local(true, true), []string{"10.244.2.11"}, 1, 1},
		"S31 somebody here":                   {local(true, true), []string{"10.244.2.11", "10.244.1.11!"}, 0, 0},
		"S26 somebody here who terminates":    {local(true, true), []string{"10.244.2.11", "10.244.1.11?!"}, 0, 0},
		"S40 nobody at all":                   {local(true, true), nil, 0, 0},
		"S30 policy Cluster, nobody is here":  {local(false, false), []string{"10.244.2.11"}, 0, 0},
		"S25 only terminating ones elsewhere": {local(true, true), []string{"10.244.2.11?"}, 1, 1},
	} {
		t.Run(name, func(t *testing.T) {
			r := newKernel().start(testOptions())
			r.proxy.Sink().SetService(c.service)
			r.proxy.Sink().SetSlice(slice(c.endpoints...))
			r.mustSettle(t)
			got := r.passes[len(r.passes)-1].NoLocal
			if n := got[desired.Policy{Family: state.IPv4}]; n != c.internal {
				t.Errorf("internal: %d, want %d", n, c.internal)
			}
			if n := got[desired.Policy{Family: state.IPv4, External: true}]; n != c.external {
				t.Errorf("external: %d, want %d", n, c.external)
			}
			r.proxy.Sink().DeleteService(web)
			r.mustSettle(t)
			for policy, n := range r.passes[len(r.passes)-1].NoLocal {
				if n != 0 {
					t.Errorf("once the Service is gone: %d for %v", n, policy)
				}
			}
		})
	}
}

// dnsService is web with UDP ports on every kind of address.
func dnsService() *state.Service {
	s := service()
	s.Ports = []state.ServicePort{{Name: "http", Protocol: "UDP", Port: 53, NodePort: 30053}}
	return s
}

func dnsSlice(endpoints ...string) *state.Slice {
	s := slice(endpoints...)
	s.Ports[0].Protocol, s.Ports[0].Port = state.UDP, 5353
	return s
}

func TestStaleFlows(t *testing.T) {
	flow := func(destination, reply string) conntrack.Flow {
		return conntrack.Flow{Protocol: state.UDP, Source: netip.MustParseAddrPort("192.0.2.99:4000"),
			Destination: netip.MustParseAddrPort(destination), ReplySource: netip.MustParseAddrPort(reply)}
	}
	everywhere := []string{"10.96.0.101:53", "203.0.113.1:53", "203.0.113.2:53", "192.0.2.11:30053"}
	for name, c := range map[string]struct {
		endpoints []string // after the change; 10.244.2.11 and .12 before
		local     bool
		reply     string
		stays     bool
	}{
		"S85 its endpoint is gone":                            {[]string{"10.244.2.12"}, false, "10.244.2.11:5353", false},
		"S85 its endpoint is still there":                     {[]string{"10.244.2.12"}, false, "10.244.2.12:5353", true},
		"S86 its endpoint terminates and serves":              {[]string{"10.244.2.11?", "10.244.2.12"}, false, "10.244.2.11:5353", true},
		"S86 its endpoint is on another node, policy Local":   {[]string{"10.244.2.12", "10.244.1.11!"}, true, "10.244.2.12:5353", true},
		"S87 no endpoint is left, also none for the NodePort": {nil, false, "10.244.2.12:5353", false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newKernel().start(testOptions())
			s := dnsService()
			s.ExternalLocal = c.local
			r.proxy.Sink().SetService(s)
			r.proxy.Sink().SetSlice(dnsSlice("10.244.2.11", "10.244.2.12"))
			r.mustSettle(t)
			for _, destination := range everywhere {
				r.flows.Add(flow(destination, c.reply))
			}
			r.proxy.Sink().SetSlice(dnsSlice(c.endpoints...))
			r.mustSettle(t)
			want := 0
			if c.stays {
				want = len(everywhere)
			}
			if got := r.flows.Flows(); len(got) != want {
				t.Errorf("%d flows, want %d: %v", len(got), want, got)
			}
		})
	}
}

// TestS85OrderOfCleaning holds that a flow is deleted only when IPVS no longer
// has its real server: before, its next packet would bring it back.
func TestS85OrderOfCleaning(t *testing.T) {
	r := newKernel().start(testOptions())
	r.proxy.Sink().SetService(dnsService())
	r.proxy.Sink().SetSlice(dnsSlice("10.244.2.11"))
	r.mustSettle(t)
	r.flows.Add(conntrack.Flow{Protocol: state.UDP, Source: netip.MustParseAddrPort("192.0.2.99:4000"),
		Destination: netip.MustParseAddrPort("10.96.0.101:53"), ReplySource: netip.MustParseAddrPort("10.244.2.11:5353")})
	r.servers.Connections(state.ServerKey{Addr: addr("10.96.0.101"), Protocol: state.UDP, Port: 53}, netip.MustParseAddrPort("10.244.2.11:5353"), 0, 1)
	asked := 0
	r.flows.Fault = func(call string) error {
		asked++
		if left := r.servers.Save(); strings.Contains(left, "10.244.2.11") || !strings.Contains(left, "-r 10.244.2.12:5353 -m -w 1") {
			t.Errorf("at %q IPVS has\n%s", call, left)
		}
		return nil
	}
	r.proxy.Sink().SetSlice(dnsSlice("10.244.2.12"))
	r.mustSettle(t)
	if asked == 0 || len(r.flows.Flows()) != 0 {
		t.Errorf("%d calls, left: %v", asked, r.flows.Flows())
	}
}

// TestS85NewAddress: a flow to an address from before it was a Service's leads
// elsewhere.
func TestS85NewAddress(t *testing.T) {
	r := newKernel().start(testOptions())
	r.mustSettle(t)
	stale := conntrack.Flow{Protocol: state.UDP, Source: netip.MustParseAddrPort("192.0.2.99:4000"),
		Destination: netip.MustParseAddrPort("203.0.113.1:53"), ReplySource: netip.MustParseAddrPort("203.0.113.1:53")}
	other := stale
	other.Destination, other.ReplySource = netip.MustParseAddrPort("203.0.113.1:54"), netip.MustParseAddrPort("203.0.113.1:54")
	tcp := stale // S89
	tcp.Protocol = state.TCP
	for _, f := range []conntrack.Flow{stale, other, tcp} {
		r.flows.Add(f)
	}
	r.proxy.Sink().SetService(dnsService())
	r.proxy.Sink().SetSlice(dnsSlice("10.244.2.11"))
	r.mustSettle(t)
	if left := r.flows.Flows(); len(left) != 2 {
		t.Errorf("left: %v, want those of the other port and of TCP", left)
	}
}

// An error deletes nothing: connections that cannot be counted are not cut.
func TestDeletedServiceWhoseConnectionsCannotBeCounted(t *testing.T) {
	r := settled(t, "10.244.1.11!")
	r.servers.Connections(webKey, netip.MustParseAddrPort("10.244.1.11:8080"), 1, 0)
	r.servers.Fault = func(call string) error {
		if call == "Reals" {
			return errors.New("broken")
		}
		return nil
	}
	r.proxy.Sink().DeleteService(web)
	r.settle()
	r.servers.Fault = nil
	r.again()
	r.has(t, "-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 0")
}

// S33: externalTrafficPolicy means nothing for a Service without an external
// address, so there is nothing to count.
func TestS33PolicyWithoutExternalAddressIsNotCounted(t *testing.T) {
	r := newKernel().start(testOptions())
	s := service()
	s.Type, s.ExternalLocal, s.ExternalIPs, s.Ingress, s.Ports[0].NodePort = "ClusterIP", true, nil, nil, 0
	r.proxy.Sink().SetService(s)
	r.proxy.Sink().SetSlice(slice("10.244.2.11"))
	r.mustSettle(t)
	if n := r.passes[len(r.passes)-1].NoLocal[desired.Policy{Family: state.IPv4, External: true}]; n != 0 {
		t.Errorf("external: %d, want 0", n)
	}
}
