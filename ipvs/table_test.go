package ipvs

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
	"golang.org/x/sys/unix"
)

type clock struct{ time.Time }

func (c *clock) now() time.Time { return c.Time }

func testConfig(c *clock) Config {
	if c == nil {
		c = &clock{time.Unix(1000, 0)}
	}
	return Config{
		Limits: DefaultLimits, Now: c.now,
		Owned: func(state.ServerKey) bool { return false }, Bound: func(netip.Addr) bool { return false },
	}
}

func node(servers map[state.ServerKey]*state.VirtualServer) *state.Node {
	n := state.NewNode()
	n.VirtualServers = servers
	return n
}

func rr(reals ...string) *state.VirtualServer {
	vs := &state.VirtualServer{Scheduler: "rr", Real: map[netip.AddrPort]int{}}
	for _, r := range reals {
		addr, zero := strings.CutSuffix(r, "=0")
		vs.Real[netip.MustParseAddrPort(addr)] = 1
		if zero {
			vs.Real[netip.MustParseAddrPort(addr)] = 0
		}
	}
	return vs
}

var all = &state.Change{All: true}

// sync runs a whole pass and returns the operations.
func sync(t *testing.T, table *Table, want *state.Node) []string {
	t.Helper()
	ctx := context.Background()
	ensured, err := table.Ensure(ctx, want, all)
	must(t, err)
	pruned, err := table.Prune(ctx, want, all)
	must(t, err)
	var text []string
	for _, op := range append(ensured, pruned...) {
		text = append(text, op.String())
	}
	return text
}

func check(t *testing.T, got []string, want ...string) {
	t.Helper()
	if strings.Join(got, "\n") != strings.Join(want, "\n") {
		t.Errorf("want\n%s\ngot\n%s", strings.Join(want, "\n"), strings.Join(got, "\n"))
	}
}

const (
	a = "10.244.0.1:8080"
	b = "10.244.0.2:8080"
)

func TestOperationsPrintAsIpvsadmTakesThem(t *testing.T) {
	mh := &state.VirtualServer{Scheduler: "mh", Flags: state.Persistent | state.Sched1 | state.Sched2, Timeout: 600,
		Real: map[netip.AddrPort]int{netip.MustParseAddrPort("[fd00::1]:53"): 1}}
	table := New(NewFake(), testConfig(nil))
	check(t, sync(t, table, node(map[state.ServerKey]*state.VirtualServer{
		tcp("10.96.0.1:80"): rr(a), udp("[fd00:96::1]:53"): mh, state.MarkKey(state.IPv4, 257): rr(a),
	})),
		"-A -f 257 -s rr",
		"-a -f 257 -r 10.244.0.1:8080 -m -w 1",
		"-A -t 10.96.0.1:80 -s rr",
		"-a -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1",
		"-A -u [fd00:96::1]:53 -s mh -p 600 -b mh-fallback,mh-port",
		"-a -u [fd00:96::1]:53 -r [fd00::1]:53 -m -w 1")
}

func TestSchedulerIsEditedInPlace(t *testing.T) {
	key := tcp("10.96.0.1:80")
	table := New(NewFake(), testConfig(nil))
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a)}))
	lc := rr(a)
	lc.Scheduler = "lc"
	check(t, sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: lc})), "-E -t 10.96.0.1:80 -s lc")
}

func TestDrain(t *testing.T) {
	key := tcp("10.96.0.1:80")
	at := netip.MustParseAddrPort(a)
	for name, c := range map[string]struct {
		want             *state.VirtualServer
		datagrams        bool
		active, inactive int
		after            time.Duration
		first, later     string
	}{
		"idle goes at once":             {want: rr(b), first: "-d"},
		"established stays":             {want: rr(b), active: 1, after: 59 * time.Second, first: "-e", later: ""},
		"established until the limit":   {want: rr(b), active: 1, after: time.Minute, first: "-e", later: "-d"},
		"listed has the longer limit":   {want: rr(b, a+"=0"), active: 1, after: 9 * time.Minute, first: "-e", later: ""},
		"listed ends too":               {want: rr(b, a+"=0"), active: 1, after: 10 * time.Minute, first: "-e", later: "-d"},
		"handshakes get a moment":       {want: rr(b), inactive: 1, after: time.Second, first: "-e", later: ""},
		"closed ones do not keep it":    {want: rr(b), inactive: 1, after: 2 * time.Second, first: "-e", later: "-d"},
		"UDP goes with its endpoint":    {want: rr(b), datagrams: true, inactive: 1, first: "-d"},
		"UDP stays while it is serving": {want: rr(b, a+"=0"), datagrams: true, inactive: 1, after: 9 * time.Minute, first: "-e", later: ""},
		"retired drains likewise":       {want: &state.VirtualServer{}, active: 1, after: time.Minute, first: "-e", later: "-d"},
	} {
		t.Run(name, func(t *testing.T) {
			now := &clock{time.Unix(1000, 0)}
			kernel := NewFake()
			table := New(kernel, testConfig(now))
			sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a, b)}))
			kernel.Connections(key, at, c.active, c.inactive)
			c.want.Datagrams = c.datagrams
			want := node(map[state.ServerKey]*state.VirtualServer{key: c.want})
			check(t, about(sync(t, table, want), a), expand(c.first)...)
			now.Time = now.Add(c.after)
			if c.first == "-e" {
				check(t, about(sync(t, table, want), a), expand(c.later)...)
			}
		})
	}
}

func expand(verb string) []string {
	switch verb {
	case "-e":
		return []string{"-e -t 10.96.0.1:80 -r " + a + " -m -w 0"}
	case "-d":
		return []string{"-d -t 10.96.0.1:80 -r " + a}
	}
	return nil
}

// about keeps the operations that name a real server.
func about(ops []string, real string) []string {
	var kept []string
	for _, op := range ops {
		if strings.Contains(op, real) {
			kept = append(kept, op)
		}
	}
	return kept
}

func TestReturningEndpointGetsItsWeightBack(t *testing.T) {
	key := tcp("10.96.0.1:80")
	kernel := NewFake()
	table := New(kernel, testConfig(nil))
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a, b)}))
	kernel.Connections(key, netip.MustParseAddrPort(a), 1, 0)
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(b)}))
	check(t, sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a, b)})),
		"-e -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1")
}

func TestDrainSurvivesARestart(t *testing.T) {
	key := tcp("10.96.0.1:80")
	now := &clock{time.Unix(1000, 0)}
	kernel := NewFake()
	must(t, kernel.AddServer(Server{Key: key, Scheduler: "rr"}))
	must(t, kernel.AddReal(key, Real{At: netip.MustParseAddrPort(a)}))
	kernel.Connections(key, netip.MustParseAddrPort(a), 1, 0)
	config := testConfig(now)
	config.Owned = func(state.ServerKey) bool { return true }
	table := New(kernel, config)
	must(t, table.Read(context.Background()))
	want := node(map[state.ServerKey]*state.VirtualServer{key: rr(b)})
	check(t, sync(t, table, want), "-a -t 10.96.0.1:80 -r 10.244.0.2:8080 -m -w 1")
	if keys, reals, _ := table.Draining(); len(keys) != 1 || reals != 1 {
		t.Errorf("draining: %v, %d", keys, reals)
	}
	now.Time = now.Add(DefaultLimits.Gone)
	must(t, table.Read(context.Background()))
	check(t, sync(t, table, want), "-d -t 10.96.0.1:80 -r 10.244.0.1:8080")
}

func TestForeignServersAreLeftAlone(t *testing.T) {
	theirs, wanted, same := tcp("192.0.2.200:6443"), tcp("10.96.0.1:80"), tcp("10.96.0.2:80")
	kernel := NewFake()
	for _, key := range []state.ServerKey{theirs, wanted, same, state.MarkKey(state.IPv4, 7)} {
		must(t, kernel.AddServer(Server{Key: key, Scheduler: "wlc"}))
	}
	must(t, kernel.AddReal(wanted, Real{At: netip.MustParseAddrPort("192.0.2.9:1"), Weight: 3}))
	must(t, kernel.AddReal(same, Real{At: netip.MustParseAddrPort(a), Weight: 1}))
	table := New(kernel, testConfig(nil))
	must(t, table.Read(context.Background()))
	want := node(map[state.ServerKey]*state.VirtualServer{wanted: rr(a), same: rr(a)})
	others := table.Adopt(want, all)
	if len(others) != 1 || others[0].Keys[0] != wanted || !errors.Is(others[0], state.ErrForeign) {
		t.Errorf("keys of somebody else's: %v", others)
	}
	sync(t, table, want)
	saved := strings.Split(strings.TrimSpace(kernel.Save()), "\n")
	check(t, saved, "-A -f 7 -s wlc", "-A -t 10.96.0.1:80 -s wlc", "-a -t 10.96.0.1:80 -r 192.0.2.9:1 -m -w 3",
		"-A -t 10.96.0.2:80 -s rr", "-a -t 10.96.0.2:80 -r 10.244.0.1:8080 -m -w 1", "-A -t 192.0.2.200:6443 -s wlc")
}

func TestUnwantedServerGoes(t *testing.T) {
	table := New(NewFake(), testConfig(nil))
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{tcp("10.96.0.1:80"): rr(a)}))
	check(t, sync(t, table, node(nil)), "-D -t 10.96.0.1:80")
}

func TestOneEndpointCostsOneRequest(t *testing.T) {
	key := tcp("10.96.0.1:80")
	kernel := NewFake()
	table := New(kernel, testConfig(nil))
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a)}))
	kernel.Writes, kernel.Reads = 0, 0
	want := node(map[state.ServerKey]*state.VirtualServer{key: rr(a, b)})
	change := &state.Change{}
	change.Server(key)
	_, err := table.Ensure(context.Background(), want, change)
	must(t, err)
	_, err = table.Prune(context.Background(), want, change)
	must(t, err)
	if kernel.Writes != 1 || kernel.Reads != 0 {
		t.Errorf("writes %d, reads %d", kernel.Writes, kernel.Reads)
	}
}

func TestSameStateOnceFaultsStop(t *testing.T) {
	servers := map[state.ServerKey]*state.VirtualServer{}
	for i := range 50 {
		servers[state.ServerKey{Addr: netip.AddrFrom4([4]byte{10, 96, 0, byte(i)}), Port: 80, Protocol: state.TCP}] = rr(a, b)
	}
	clean := NewFake()
	sync(t, New(clean, testConfig(nil)), node(servers))

	fake := NewFake()
	random := rand.New(rand.NewPCG(1, 2))
	fake.Fault = func(string) error {
		if random.IntN(10) == 0 {
			return unix.ENOMEM
		}
		return nil
	}
	table := New(fake, testConfig(nil))
	failed := 0
	for range 5 {
		if err := errors.Join(pass(table, node(servers)), pass(table, node(nil))); err != nil {
			failed++
		}
	}
	if failed == 0 {
		t.Fatal("no fault came up")
	}
	fake.Fault = nil
	must(t, pass(table, node(servers)))
	if fake.Save() != clean.Save() {
		t.Errorf("want\n%s\ngot\n%s", clean.Save(), fake.Save())
	}
}

// pass is a whole round from reading on.
func pass(table *Table, want *state.Node) error {
	ctx := context.Background()
	if err := table.Read(ctx); err != nil {
		return err
	}
	_, err := table.Ensure(ctx, want, all)
	_, err2 := table.Prune(ctx, want, all)
	return errors.Join(err, err2)
}

func TestWhatShowsThatAServerIsOurs(t *testing.T) {
	key, at := tcp("192.0.2.11:30080"), netip.MustParseAddrPort(a)
	for name, c := range map[string]struct {
		reals []Real
		bound bool
		owned bool
		ours  bool
	}{
		"in the record":                   {owned: true, ours: true},
		"wanted real servers":             {reals: []Real{{At: at, Weight: 1}}, ours: true},
		"no real server":                  {},
		"no real server, address ours":    {bound: true, ours: true},
		"a real server by direct routing": {reals: []Real{{At: at, Weight: 1, Forward: 3}}},
		"a strange real server":           {reals: []Real{{At: netip.MustParseAddrPort("192.0.2.9:1")}}},
		"a strange one and a wanted one":  {reals: []Real{{At: at}, {At: netip.MustParseAddrPort("192.0.2.9:1")}}},
	} {
		t.Run(name, func(t *testing.T) {
			kernel := NewFake()
			must(t, kernel.AddServer(Server{Key: key, Scheduler: "rr"}))
			for _, r := range c.reals {
				must(t, kernel.AddReal(key, r))
			}
			config := testConfig(nil)
			config.Owned = func(state.ServerKey) bool { return c.owned }
			config.Bound = func(netip.Addr) bool { return c.bound }
			table := New(kernel, config)
			must(t, table.Read(context.Background()))
			others := table.Adopt(node(map[state.ServerKey]*state.VirtualServer{key: rr(a)}), all)
			if ours := len(others) == 0; ours != c.ours || table.IsForeign(key) == c.ours {
				t.Errorf("others %v, foreign %t", others, table.IsForeign(key))
			}
		})
	}
}

// TestServerThatAppearedSinceTheLastRead: another program was faster. What we
// have written into the record by then must not make it ours.
func TestServerThatAppearedSinceTheLastRead(t *testing.T) {
	key := tcp("192.0.2.11:30080")
	kernel := NewFake()
	config := testConfig(nil)
	config.Owned = func(state.ServerKey) bool { return true }
	table := New(kernel, config)
	must(t, table.Read(context.Background()))
	must(t, kernel.AddServer(Server{Key: key, Scheduler: "wlc"}))
	must(t, kernel.AddReal(key, Real{At: netip.MustParseAddrPort("192.0.2.9:1"), Weight: 1}))
	before := kernel.Save()
	want := node(map[state.ServerKey]*state.VirtualServer{key: rr(a)})
	if _, err := table.Ensure(context.Background(), want, all); !errors.Is(err, unix.EEXIST) {
		t.Errorf("got %v", err)
	}
	must(t, table.Read(context.Background()))
	if others := table.Adopt(want, all); len(others) != 1 {
		t.Errorf("others: %v", others)
	}
	sync(t, table, want)
	if after := kernel.Save(); after != before {
		t.Errorf("want\n%s\ngot\n%s", before, after)
	}
}

func TestForwardingMethodIsMended(t *testing.T) {
	key := tcp("10.96.0.1:80")
	kernel := NewFake()
	table := New(kernel, testConfig(nil))
	want := node(map[state.ServerKey]*state.VirtualServer{key: rr(a)})
	sync(t, table, want)
	must(t, kernel.EditReal(key, Real{At: netip.MustParseAddrPort(a), Weight: 1, Forward: 3}))
	must(t, table.Read(context.Background()))
	check(t, sync(t, table, want), "-e -t 10.96.0.1:80 -r 10.244.0.1:8080 -m -w 1")
}

func TestTheNextLookComesNoLaterThanTheLimit(t *testing.T) {
	key := tcp("10.96.0.1:80")
	now := &clock{time.Unix(1000, 0)}
	kernel := NewFake()
	table := New(kernel, testConfig(now))
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a, b)}))
	kernel.Connections(key, netip.MustParseAddrPort(a), 1, 0)
	want := node(map[state.ServerKey]*state.VirtualServer{key: rr(b)})
	sync(t, table, want)
	for age := time.Duration(0); age < DefaultLimits.Gone; age += time.Second {
		now.Time = time.Unix(1000, 0).Add(age)
		if _, _, wait := table.Draining(); age+wait > DefaultLimits.Gone+DefaultLimits.Settle {
			t.Errorf("at %s the next look is in %s", age, wait)
		}
	}
}

func TestRefusedRealServerSparesTheOthers(t *testing.T) {
	key := tcp("10.96.0.1:80")
	kernel := NewFake()
	table := New(kernel, testConfig(nil))
	sync(t, table, node(map[state.ServerKey]*state.VirtualServer{key: rr(a)}))
	want := node(map[state.ServerKey]*state.VirtualServer{key: rr(b, "224.1.1.1:80", "240.0.0.1:80")})
	change := &state.Change{All: true}
	_, err := table.Ensure(context.Background(), want, change)
	if !errors.Is(err, unix.EINVAL) || !change.Fails(err) || change.FailedKey(key) {
		t.Errorf("error %v, failed %v", err, change.Failed)
	}
	_, err = table.Prune(context.Background(), want, change)
	must(t, err)
	check(t, strings.Split(strings.TrimSpace(kernel.Save()), "\n"),
		"-A -t 10.96.0.1:80 -s rr", "-a -t 10.96.0.1:80 -r 10.244.0.2:8080 -m -w 1", "-a -t 10.96.0.1:80 -r 240.0.0.1:80 -m -w 1")
}
