package conntrack

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// subject is a kernel under the contract, beside the Table that uses it.
type subject struct {
	*Table
	add  func(*testing.T, Flow)
	list func(*testing.T) []Flow
	// zones reports whether entries can be in a zone.
	zones func(*testing.T) bool
}

func fakeSubject() subject {
	f := NewFake()
	return subject{
		Table: New(f),
		add:   func(_ *testing.T, flow Flow) { f.Add(flow) },
		list:  func(*testing.T) []Flow { return f.Flows() },
		zones: func(*testing.T) bool { return true },
	}
}

// kernelSubject returns the running kernel under the contract, in a network
// namespace of its own.
func kernelSubject(t *testing.T) subject {
	if os.Getenv("KUBE_IPVS_KERNEL") != "1" {
		t.Skip("KUBE_IPVS_KERNEL is not 1: no kernel to test on")
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("making a network namespace:", err)
	}
	return subject{Table: Open(), add: insert, list: list, zones: haveZones}
}

// insert makes an entry with the conntrack program.
func insert(t *testing.T, f Flow) {
	t.Helper()
	args := []string{"-I", "-p", f.Protocol.String(), "-t", "300",
		"-s", f.Source.Addr().String(), "-d", f.Destination.Addr().String(), "--sport", port(f.Source), "--dport", port(f.Destination),
		"-r", f.ReplySource.Addr().String(), "-q", f.Source.Addr().String(),
		"--reply-port-src", port(f.ReplySource), "--reply-port-dst", port(f.Source)}
	if f.Protocol == state.TCP {
		args = append(args, "--state", "ESTABLISHED")
	}
	switch {
	case f.ZoneOfTuple:
		args = append(args, "--orig-zone", strconv.Itoa(int(f.Zone)))
	case f.Zone != 0:
		args = append(args, "-w", strconv.Itoa(int(f.Zone)))
	}
	if out, err := exec.Command("conntrack", args...).CombinedOutput(); err != nil {
		t.Fatalf("conntrack %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func port(a netip.AddrPort) string { return strconv.Itoa(int(a.Port())) }

// haveZones reports whether the kernel takes an entry in a zone.
func haveZones(t *testing.T) bool {
	out, err := exec.Command("conntrack", "-I", "-p", "udp", "-t", "1", "-s", "192.0.2.1", "-d", "192.0.2.2",
		"--sport", "1", "--dport", "2", "-w", "5").CombinedOutput()
	if err != nil && !strings.Contains(string(out), "not supported") {
		t.Fatalf("making an entry in a zone: %v: %s", err, out)
	}
	if err != nil {
		return false
	}
	if out, err := exec.Command("conntrack", "-D", "-w", "5").CombinedOutput(); err != nil {
		t.Fatalf("deleting the entry in a zone: %v: %s", err, out)
	}
	return true
}

// list reads what the conntrack program prints.
func list(t *testing.T) []Flow {
	t.Helper()
	var flows []Flow
	for _, family := range []string{"ipv4", "ipv6"} {
		out, err := exec.Command("conntrack", "-L", "-f", family).Output()
		if err != nil {
			t.Fatal("conntrack -L:", err)
		}
		for line := range strings.Lines(string(out)) {
			flows = append(flows, parse(t, line))
		}
	}
	slices.SortFunc(flows, Flow.compare)
	return flows
}

// parse reads a line such as "udp 17 299 src=10.244.1.9 dst=10.96.0.10
// sport=4000 dport=53 [UNREPLIED] src=10.244.1.11 dst=… sport=53 dport=4000 …".
func parse(t *testing.T, line string) Flow {
	values := map[string][]string{}
	for _, field := range strings.Fields(line) {
		if key, value, ok := strings.Cut(field, "="); ok {
			values[key] = append(values[key], value)
		}
	}
	number := func(s string) uint16 {
		n, err := strconv.ParseUint(s, 10, 16)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		return uint16(n)
	}
	end := func(addr, port string, i int) netip.AddrPort {
		return netip.AddrPortFrom(netip.MustParseAddr(values[addr][i]), number(values[port][i]))
	}
	f := Flow{Source: end("src", "sport", 0), Destination: end("dst", "dport", 0), ReplySource: end("src", "sport", 1)}
	f.Protocol = state.Protocol(number(strings.Fields(line)[1]))
	for key, own := range map[string]bool{"zone": false, "zone-orig": true} {
		if len(values[key]) > 0 {
			f.Zone, f.ZoneOfTuple = number(values[key][0]), own
		}
	}
	return f
}

// contract runs a test against the fake and against the kernel.
func contract(t *testing.T, test func(*testing.T, subject)) {
	t.Run("fake", func(t *testing.T) { test(t, fakeSubject()) })
	t.Run("kernel", func(t *testing.T) { test(t, kernelSubject(t)) })
}

func at(s string) netip.AddrPort { return netip.MustParseAddrPort(s) }

func udp(source, destination, reply string) Flow {
	return Flow{Protocol: state.UDP, Source: at(source), Destination: at(destination), ReplySource: at(reply)}
}

func tcp(source, destination, reply string) Flow {
	f := udp(source, destination, reply)
	f.Protocol = state.TCP
	return f
}

func key(s string) state.ServerKey {
	a := at(s)
	return state.ServerKey{Addr: a.Addr(), Protocol: state.UDP, Port: a.Port()}
}

// wanted returns a node whose virtual servers have real servers.
func wanted(flows map[string][]string) *state.Node {
	n := state.NewNode()
	for server, real := range flows {
		good := map[netip.AddrPort]struct{}{}
		for _, r := range real {
			good[at(r)] = struct{}{}
		}
		n.Flows[key(server)] = good
	}
	return n
}

func named(keys ...state.ServerKey) *state.Change {
	c := &state.Change{}
	for _, k := range keys {
		c.Server(k)
	}
	return c
}

func lines[T fmt.Stringer](list []T) string {
	var text []string
	for _, e := range list {
		text = append(text, e.String())
	}
	return strings.Join(text, "\n")
}

const (
	dns  = "10.96.0.10:53"
	dns6 = "[fd00:96::10]:53"
	one  = "10.244.1.11:5353"
	two  = "10.244.2.12:5353"
	six  = "[fd00:244::11]:5353"
	gone = "10.244.9.9:5353"
)

// table is what the kernel holds at the start of every case.
var table = []Flow{
	udp("10.244.1.9:4000", dns, one),
	udp("10.244.1.9:4001", dns, two),
	udp("10.244.1.9:4002", dns, gone),
	udp("10.244.1.9:4003", dns, "10.244.1.11:53"), // the address of a good one, another port
	udp("10.244.1.9:4004", dns, dns),              // not translated: older than the virtual server
	udp("10.244.1.9:4005", one, one),              // somebody's direct flow
	udp("10.244.1.9:4006", "10.96.0.10:54", gone), // another port
	udp("10.244.1.9:4007", "10.96.0.11:53", gone), // another address
	tcp("10.244.1.9:4008", dns, gone),
	udp("[fd00::9]:4000", dns6, six),
	udp("[fd00::9]:4001", dns6, "[fd00:244::99]:5353"),
}

func TestClean(t *testing.T) {
	for _, test := range []struct {
		name   string
		flows  map[string][]string
		change *state.Change
		// deleted are indices into table.
		deleted []int
	}{
		{"S85 nothing named", map[string][]string{dns: {one}}, &state.Change{}, nil},
		{"S85 a real server left", map[string][]string{dns: {one, two}, dns6: {six}}, named(key(dns)), []int{2, 3, 4}},
		{"S87 no real server", map[string][]string{dns: {}}, named(key(dns)), []int{0, 1, 2, 3, 4}},
		{"S85 virtual server removed", nil, named(key(dns)), []int{0, 1, 2, 3, 4}},
		{"IPv6", map[string][]string{dns: {}, dns6: {six}}, named(key(dns6)), []int{10}},
		{"both families", map[string][]string{dns: {one}, dns6: {}}, named(key(dns), key(dns6)), []int{1, 2, 3, 4, 9, 10}},
		{"all", map[string][]string{dns: {one, two}, "10.96.0.11:53": {one}}, &state.Change{All: true}, []int{2, 3, 4, 7}},
		{"all, and one removed", map[string][]string{"10.96.0.11:53": {one}},
			&state.Change{All: true, Servers: named(key(dns6)).Servers}, []int{7, 9, 10}},
		{"all, nothing wanted", nil, &state.Change{All: true}, nil},
		{"S89 another protocol", nil, named(state.ServerKey{Addr: at(dns).Addr(), Protocol: state.TCP, Port: 53}, state.MarkKey(state.IPv4, 9)), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			contract(t, func(t *testing.T, s subject) {
				for _, f := range table {
					s.add(t, f)
				}
				ops, err := s.Clean(t.Context(), wanted(test.flows), test.change)
				if err != nil {
					t.Fatal(err)
				}
				var deleted, left []Flow
				for i, f := range table {
					if slices.Contains(test.deleted, i) {
						deleted = append(deleted, f)
					} else {
						left = append(left, f)
					}
				}
				var commands []string
				for _, f := range deleted {
					commands = append(commands, "conntrack -D "+f.String())
				}
				if got, want := lines(ops), strings.Join(commands, "\n"); got != want {
					t.Errorf("operations:\n%s\nwant:\n%s", got, want)
				}
				slices.SortFunc(left, Flow.compare)
				if got, want := lines(s.list(t)), lines(left); got != want {
					t.Errorf("left:\n%s\nwant:\n%s", got, want)
				}
				if ops, err := s.Clean(t.Context(), wanted(test.flows), test.change); len(ops) != 0 || err != nil {
					t.Errorf("a second time: %s, %v", lines(ops), err)
				}
			})
		})
	}
}

func TestZones(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		plain, zoned, own := udp("10.0.0.9:4000", dns, one), udp("10.0.0.9:4000", dns, gone), udp("10.0.0.9:4001", dns, gone)
		zoned.Zone = 7
		own.Zone, own.ZoneOfTuple = 8, true
		if !s.zones(t) {
			t.Log("this kernel has no zones (CONFIG_NF_CONNTRACK_ZONES)")
			return
		}
		for _, f := range []Flow{plain, zoned, own} {
			s.add(t, f)
		}
		ops, err := s.Clean(t.Context(), wanted(map[string][]string{dns: {one}}), named(key(dns)))
		if err != nil {
			t.Fatal(err)
		}
		if got, want := lines(ops), "conntrack -D "+zoned.String()+"\nconntrack -D "+own.String(); got != want {
			t.Errorf("operations:\n%s\nwant:\n%s", got, want)
		}
		if got := lines(s.list(t)); got != plain.String() {
			t.Errorf("left:\n%s\nwant:\n%s", got, plain)
		}
	})
}

// TestNewcomerIsSpared deletes an entry whose place another one has taken
// since it was seen.
func TestNewcomerIsSpared(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		old := udp("10.0.0.9:4000", dns, gone)
		s.add(t, old)
		var seen []Flow
		collect := func(f Flow) { seen = append(seen, f) }
		if err := s.kernel.dump(t.Context(), state.IPv4, filter{protocol: state.UDP}, collect); err != nil {
			t.Fatal(err)
		}
		if len(seen) != 1 || seen[0].ID == 0 {
			t.Fatalf("seen %+v, want one entry with a number", seen)
		}
		if err := s.kernel.delete(t.Context(), seen[0]); err != nil {
			t.Fatal(err)
		}
		if err := s.kernel.delete(t.Context(), seen[0]); err != nil {
			t.Error("deleting what is gone:", err)
		}
		fresh := udp("10.0.0.9:4000", dns, one)
		s.add(t, fresh)
		if err := s.kernel.delete(t.Context(), Flow{Protocol: old.Protocol, Source: old.Source, Destination: old.Destination,
			ReplySource: old.ReplySource, ID: seen[0].ID + 0x01010101}); err != nil {
			t.Fatal(err)
		}
		if got := lines(s.list(t)); got != fresh.String() {
			t.Errorf("left:\n%s\nwant:\n%s", got, fresh)
		}
	})
}

func TestCancelledContext(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if _, err := s.Clean(ctx, wanted(nil), named(key(dns))); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}

// TestKernelFilters shows that the kernel hands over only what is asked for
// (Linux 5.8 and newer).
func TestKernelFilters(t *testing.T) {
	s := kernelSubject(t)
	for _, f := range table {
		s.add(t, f)
	}
	count := func(family state.Family, f filter) int {
		n := 0
		if err := s.kernel.dump(t.Context(), family, f, func(Flow) { n++ }); err != nil {
			t.Fatal(err)
		}
		return n
	}
	for _, test := range []struct {
		family state.Family
		filter filter
		want   int
	}{
		{state.IPv4, filter{protocol: state.UDP}, 8},
		{state.IPv4, filter{state.UDP, at(dns)}, 5},
		{state.IPv6, filter{state.UDP, at(dns6)}, 2},
		{state.IPv6, filter{state.UDP, at("[fd00:96::10]:54")}, 0},
		{state.IPv4, filter{state.TCP, at(dns)}, 1},
		{state.IPv4, filter{state.UDP, at(two)}, 0},
	} {
		if got := count(test.family, test.filter); got != test.want {
			t.Errorf("%s %+v: %d entries, want %d", test.family, test.filter, got, test.want)
		}
	}
}
