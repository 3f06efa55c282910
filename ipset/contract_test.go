package ipset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// ground is a kernel under the contract, and a way to make a rule name a set.
type ground struct {
	kernel
	refer func(t *testing.T, set string) (release func())
}

// contract is what the fake and the real kernel have in common.
var contract = map[string]func(*testing.T, ground){
	"every type comes back as it was put":  everyType,
	"a large set comes back whole":         largeSet,
	"a changed mark replaces":              changedMark,
	"what is there or gone is success":     success,
	"a refused entry spares the others":    refusedEntry,
	"a set that does not exist is ENOENT":  unknownSet,
	"another option is swapped in":         swappedIn,
	"another type is made anew":            madeAnew,
	"a set in use stays":                   inUse,
	"the sets of others stay":              strangers,
	"headers show flushed sets and rules":  headersShow,
	"destroy leaves nothing of ours":       destroyAll,
	"the probe leaves nothing":             probeLeavesNothing,
	"the kernel tells an existing set off": createOther,
}

func TestContractFake(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			f := NewFake()
			test(t, ground{f, func(_ *testing.T, set string) func() {
				f.Refer(set, 1)
				return func() { f.Refer(set, 0) }
			}})
		})
	}
}

func TestContractKernel(t *testing.T) {
	needKernel(t)
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			k, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.close)
			t.Cleanup(func() { run(t, "ipset", "destroy") })
			test(t, ground{k, referRule})
		})
	}
}

func needKernel(t *testing.T) {
	t.Helper()
	if os.Getenv("KUBE_IPVS_KERNEL") != "1" {
		t.Skip("KUBE_IPVS_KERNEL=1 is not set: this test changes the ipsets of its network namespace")
	}
}

// referRule adds an iptables rule that names a set of one dimension.
func referRule(t *testing.T, set string) func() {
	rule := []string{"OUTPUT", "-m", "set", "--match-set", set, "dst", "-j", "ACCEPT"}
	run(t, "iptables", append([]string{"-A"}, rule...)...)
	return func() { run(t, "iptables", append([]string{"-D"}, rule...)...) }
}

func run(t *testing.T, name string, args ...string) string {
	t.Helper()
	out, err := exec.Command(name, args...).CombinedOutput()
	if err != nil {
		t.Fatalf("%s %s: %v\n%s", name, strings.Join(args, " "), err, out)
	}
	return string(out)
}

// addr, net and port write entries as "ipset add" takes them.
func addr(s string) state.Entry { return state.IPEntry(netip.MustParseAddr(s)) }
func network(s string) state.Entry {
	return state.Entry{Net: netip.MustParsePrefix(s)}
}
func port(p state.Protocol, s string) state.Entry {
	ap := netip.MustParseAddrPort(s)
	return state.Entry{Addr: ap.Addr(), Protocol: p, Port: ap.Port()}
}
func portNet(p state.Protocol, s, net string) state.Entry {
	e := port(p, s)
	e.Net = netip.MustParsePrefix(net)
	return e
}

func set(kind state.SetType, f state.Family, entries ...state.Entry) *state.Set {
	s := &state.Set{Type: kind, Family: f, Entries: map[state.Entry]uint32{}}
	for _, e := range entries {
		s.Entries[e] = 0
	}
	return s
}

func marked(f state.Family, entries map[state.Entry]uint32) *state.Set {
	return &state.Set{Type: state.HashIPPort, Family: f, Marks: true, Entries: entries}
}

// node returns a Node with sets, in the order of their names.
func node(sets map[string]*state.Set) *state.Node {
	n := state.NewNode()
	n.Sets = sets
	n.SetOrder = slices.Sorted(maps.Keys(sets))
	return n
}

func all() *state.Change { return &state.Change{All: true} }

// settle brings the kernel to the wanted state and asserts that nothing is left
// to do, neither for this Table nor for one without memory.
func settle(t *testing.T, k kernel, want *state.Node) []string {
	t.Helper()
	table := New(k)
	done := mustSync(t, table, want)
	for _, again := range []*Table{table, New(k)} {
		if err := again.Read(t.Context()); err != nil {
			t.Fatal(err)
		}
		if extra := mustSync(t, again, want); len(extra) > 0 {
			t.Errorf("the second sync did something: %q", extra)
		}
		for name, set := range want.Sets {
			if !maps.Equal(again.Entries(name), set.Entries) {
				t.Errorf("%s holds %v, want %v", name, again.Entries(name), set.Entries)
			}
		}
	}
	return done
}

func mustSync(t *testing.T, table *Table, want *state.Node) []string {
	t.Helper()
	if err := table.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	ensured, err := table.Ensure(t.Context(), want, all())
	if err != nil {
		t.Fatal(err)
	}
	pruned, err := table.Prune(t.Context(), want, all())
	if err != nil {
		t.Fatal(err)
	}
	return texts(append(ensured, pruned...))
}

func texts(ops []state.Op) []string {
	var out []string
	for _, o := range ops {
		out = append(out, o.String())
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func names(t *testing.T, k kernel) []string {
	t.Helper()
	found, err := k.headers()
	if err != nil {
		t.Fatal(err)
	}
	return slices.Sorted(maps.Keys(found))
}

func everyType(t *testing.T, g ground) {
	want := node(map[string]*state.Set{
		"KIPVS-IP":      set(state.HashIP, state.IPv4, addr("10.0.0.1"), addr("255.255.255.255")),
		"KIPVS-NET":     set(state.HashNet, state.IPv4, network("10.0.0.0/8"), network("10.0.0.1/32"), network("128.0.0.0/1")),
		"KIPVS-PORT":    set(state.HashIPPort, state.IPv4, port(state.TCP, "10.96.0.1:443"), port(state.UDP, "10.96.0.1:53"), port(state.SCTP, "0.0.0.0:65535")),
		"KIPVS-MARK":    marked(state.IPv4, map[state.Entry]uint32{port(state.TCP, "203.0.113.1:80"): 0x101, port(state.TCP, "203.0.113.1:81"): 0xffffffff, port(state.TCP, "203.0.113.1:82"): 0}),
		"KIPVS-LOOP":    set(state.HashIPPortIP, state.IPv4, portNet(state.TCP, "10.1.0.1:8080", "10.1.0.1/32")),
		"KIPVS-SOURCE":  set(state.HashIPPortNet, state.IPv4, portNet(state.UDP, "10.1.0.1:53", "192.0.2.0/24"), portNet(state.UDP, "10.1.0.1:53", "192.0.2.1/32")),
		"KIPVS6-IP":     set(state.HashIP, state.IPv6, addr("fd00::1")),
		"KIPVS6-NET":    set(state.HashNet, state.IPv6, network("fd00::/8"), network("fd00::1/128")),
		"KIPVS6-PORT":   set(state.HashIPPort, state.IPv6, port(state.TCP, "[fd00::1]:443")),
		"KIPVS6-MARK":   marked(state.IPv6, map[state.Entry]uint32{port(state.TCP, "[2001:db8::1]:80"): 0x4101}),
		"KIPVS6-LOOP":   set(state.HashIPPortIP, state.IPv6, portNet(state.SCTP, "[fd00::1]:8080", "fd00::1/128")),
		"KIPVS6-SOURCE": set(state.HashIPPortNet, state.IPv6, portNet(state.UDP, "[fd00::1]:53", "2001:db8::/32")),
	})
	settle(t, g, want)
	settle(t, g, node(map[string]*state.Set{}))
	if left := names(t, g); len(left) > 0 {
		t.Errorf("sets are left: %q", left)
	}
}

func largeSet(t *testing.T, g ground) {
	const size = 3*batchSize + 1
	entries := map[state.Entry]uint32{}
	for i := range uint16(size) {
		e := port(state.TCP, "[2001:db8:1111:2222:3333:4444:5555:6666]:1")
		e.Port += i
		entries[e] = uint32(i) + 1
	}
	settle(t, g, node(map[string]*state.Set{"KIPVS6-LARGE": marked(state.IPv6, entries)}))
	few := map[state.Entry]uint32{}
	for e, m := range entries {
		if m%700 == 0 {
			few[e] = m
		}
	}
	done := settle(t, g, node(map[string]*state.Set{"KIPVS6-LARGE": marked(state.IPv6, few)}))
	if len(done) != len(entries)-len(few) {
		t.Errorf("%d operations, want %d", len(done), len(entries)-len(few))
	}
}

func changedMark(t *testing.T, g ground) {
	e := port(state.TCP, "203.0.113.1:80")
	for _, step := range []struct {
		mark uint32
		op   string
	}{
		{0x101, "add KIPVS-MARK 203.0.113.1,tcp:80 skbmark 0x101"},
		{0x202, "add KIPVS-MARK 203.0.113.1,tcp:80 skbmark 0x202"},
		{0, "add KIPVS-MARK 203.0.113.1,tcp:80"},
	} {
		done := settle(t, g, node(map[string]*state.Set{"KIPVS-MARK": marked(state.IPv4, map[state.Entry]uint32{e: step.mark})}))
		expect(t, done[len(done)-1:], step.op)
	}
}

func success(t *testing.T, g ground) {
	want := node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1"))})
	none := node(map[string]*state.Set{})
	first, second := New(g), New(g)
	for range 2 {
		mustEnsure(t, first, want)
		mustEnsure(t, second, want)
		e := set(state.HashIP, state.IPv4)
		for _, table := range []*Table{first, second} {
			if _, err := table.Prune(t.Context(), node(map[string]*state.Set{"KIPVS-A": e}), all()); err != nil {
				t.Error(err)
			}
		}
		mustEnsure(t, first, want)
		mustEnsure(t, second, want)
		for _, table := range []*Table{first, second} {
			if _, err := table.Prune(t.Context(), none, all()); err != nil {
				t.Error(err)
			}
		}
	}
}

func mustEnsure(t *testing.T, table *Table, want *state.Node) {
	t.Helper()
	if _, err := table.Ensure(t.Context(), want, all()); err != nil {
		t.Error(err)
	}
}

func refusedEntry(t *testing.T, g ground) {
	bad := addr("0.0.0.0")
	if err := g.create("KIPVS-A", spec{Type: state.HashIP, Family: state.IPv4, Max: maxElements}); err != nil {
		t.Fatal(err)
	}
	err := g.add("KIPVS-A", []member{{entry: addr("10.0.0.1")}, {entry: bad}, {entry: addr("10.0.0.2")}})
	refusal, ok := errors.AsType[*refusal](err)
	if !ok || refusal.index != 1 || !errors.Is(err, codeElement) {
		t.Errorf("got %v, want entry 1 refused", err)
	}
	entries, err := g.entries("KIPVS-A")
	if want := map[state.Entry]uint32{addr("10.0.0.1"): 0}; err != nil || !maps.Equal(entries, want) {
		t.Errorf("got %v, %v, want %v", entries, err, want)
	}

	table := New(g)
	want := node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1"), bad, addr("10.0.0.2"))})
	if err := table.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, err := table.Ensure(t.Context(), want, all())
	expect(t, texts(done), "add KIPVS-A 10.0.0.2")
	if err == nil || !strings.Contains(err.Error(), "ipset add KIPVS-A 0.0.0.0: ") {
		t.Errorf("the error %v does not name the set and the entry", err)
	}
}

func unknownSet(t *testing.T, g ground) {
	_, err := g.entries("KIPVS-NONE")
	for call, err := range map[string]error{
		"list":    err,
		"destroy": g.destroy("KIPVS-NONE"),
		"add":     g.add("KIPVS-NONE", []member{{entry: addr("10.0.0.1")}}),
		"del":     g.del("KIPVS-NONE", []member{{entry: addr("10.0.0.1")}}),
		"swap":    g.swap("KIPVS-NONE", "KIPVS-NONE2"),
	} {
		if !errors.Is(err, unix.ENOENT) {
			t.Errorf("%s: got %v, want ENOENT", call, err)
		}
	}
}

func swappedIn(t *testing.T, g ground) {
	e := port(state.TCP, "203.0.113.1:80")
	settle(t, g, node(map[string]*state.Set{"KIPVS-A": set(state.HashIPPort, state.IPv4, e)}))
	if err := g.create(nextName(state.IPv4), spec{Type: state.HashIP, Family: state.IPv4, Max: 8}); err != nil {
		t.Fatal(err)
	}
	release := g.refer(t, "KIPVS-A")
	defer release()
	done := settle(t, g, node(map[string]*state.Set{"KIPVS-A": marked(state.IPv4, map[state.Entry]uint32{e: 1})}))
	expect(t, done,
		"destroy KIPVS-NEXT",
		"create KIPVS-NEXT hash:ip,port family inet maxelem 1048576 skbinfo",
		"add KIPVS-NEXT 203.0.113.1,tcp:80 skbmark 0x1",
		"swap KIPVS-NEXT KIPVS-A",
		"destroy KIPVS-NEXT")
}

func madeAnew(t *testing.T, g ground) {
	settle(t, g, node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1"))}))
	want := node(map[string]*state.Set{"KIPVS-A": set(state.HashNet, state.IPv4, network("10.0.0.0/8"))})
	release := g.refer(t, "KIPVS-A")
	table := New(g)
	if err := table.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	done, err := table.Ensure(t.Context(), want, all())
	if !errors.Is(err, codeBusy) || len(done) > 0 {
		t.Errorf("got %q, %v, want busy", texts(done), err)
	}
	if done, err := table.Prune(t.Context(), want, all()); err != nil || len(done) > 0 {
		t.Errorf("got %q, %v: a set that could not be ensured was pruned", texts(done), err)
	}
	release()
	expect(t, settle(t, g, want),
		"destroy KIPVS-A",
		"create KIPVS-A hash:net family inet maxelem 1048576",
		"add KIPVS-A 10.0.0.0/8")
}

func inUse(t *testing.T, g ground) {
	settle(t, g, node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4), "KIPVS-B": set(state.HashIP, state.IPv4)}))
	release := g.refer(t, "KIPVS-A")
	table := New(g)
	done, err := table.Destroy(t.Context())
	if !errors.Is(err, codeBusy) || !strings.Contains(err.Error(), "KIPVS-A") {
		t.Errorf("got %v, want KIPVS-A busy", err)
	}
	expect(t, texts(done), "destroy KIPVS-B")
	release()
	done, err = table.Destroy(t.Context())
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "destroy KIPVS-A")
}

func strangers(t *testing.T, g ground) {
	other := spec{Type: state.HashIP, Family: state.IPv4, Max: 65536}
	for _, name := range []string{"KUBE-CLUSTER-IP", "KIPVS"} {
		if err := errors.Join(g.create(name, other), g.add(name, []member{{entry: addr("10.0.0.1")}})); err != nil {
			t.Fatal(err)
		}
	}
	want := node(map[string]*state.Set{"KUBE-CLUSTER-IP": set(state.HashNet, state.IPv4)})
	table := New(g)
	if err := table.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	if done, err := table.Ensure(t.Context(), want, all()); err == nil || len(done) > 0 {
		t.Errorf("got %q, %v, want a refusal of the name", texts(done), err)
	}
	for _, act := range []func(context.Context, *state.Node, *state.Change) ([]state.Op, error){table.Prune, table.Ensure} {
		if done, err := act(t.Context(), state.NewNode(), all()); err != nil || len(done) > 0 {
			t.Errorf("got %q, %v, want nothing", texts(done), err)
		}
	}
	if heads, err := table.Headers(t.Context()); err != nil || len(heads) > 0 {
		t.Errorf("got %v, %v, want no headers", heads, err)
	}
	for _, name := range []string{"KUBE-CLUSTER-IP", "KIPVS"} {
		if entries, err := g.entries(name); err != nil || len(entries) != 1 {
			t.Errorf("%s: %v, %v", name, entries, err)
		}
		if err := g.destroy(name); err != nil {
			t.Error(err)
		}
	}
}

func headersShow(t *testing.T, g ground) {
	want := node(map[string]*state.Set{
		"KIPVS-A":  set(state.HashIP, state.IPv4, addr("10.0.0.1"), addr("10.0.0.2")),
		"KIPVS6-A": set(state.HashIP, state.IPv6),
	})
	settle(t, g, want)
	release := g.refer(t, "KIPVS-A")
	defer release()
	heads, err := New(g).Headers(t.Context())
	if want := (map[string]Header{"KIPVS-A": {2, 1}, "KIPVS6-A": {0, 0}}); err != nil || !reflect.DeepEqual(heads, want) {
		t.Errorf("got %v, %v, want %v", heads, err, want)
	}
}

func destroyAll(t *testing.T, g ground) {
	settle(t, g, node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1")), "KIPVS6-A": set(state.HashIP, state.IPv6)}))
	done, err := New(g).Destroy(t.Context())
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "destroy KIPVS-A", "destroy KIPVS6-A")
	if left := names(t, g); len(left) > 0 {
		t.Errorf("sets are left: %q", left)
	}
}

func probeLeavesNothing(t *testing.T, g ground) {
	if err := g.create(probeName, spec{Type: state.HashNet, Family: state.IPv6, Max: 8}); err != nil {
		t.Fatal(err)
	}
	if err := New(g).Probe(); err != nil {
		t.Error(err)
	}
	if left := names(t, g); len(left) > 0 {
		t.Errorf("sets are left: %q", left)
	}
}

func createOther(t *testing.T, g ground) {
	s := spec{Type: state.HashIP, Family: state.IPv4, Max: maxElements}
	other, marks, family := s, s, s
	other.Type, marks.Marks, family.Family = state.HashNet, true, state.IPv6
	if err := errors.Join(g.create("KIPVS-A", s), g.create("KIPVS-A", s)); err != nil {
		t.Error(err)
	}
	for _, o := range []spec{other, marks, family} {
		if err := g.create("KIPVS-A", o); !errors.Is(err, unix.EEXIST) {
			t.Errorf("create %s over %s: got %v, want EEXIST", o, s, err)
		}
	}
	if err := g.create("KIPVS-B", other); err != nil {
		t.Error(err)
	}
	if err := g.swap("KIPVS-A", "KIPVS-B"); !errors.Is(err, codeMismatch) {
		t.Errorf("swap: got %v, want a mismatch", err)
	}
	if err := g.add("KIPVS-A", []member{{port(state.TCP, "10.0.0.1:1"), 0}, {network("10.0.0.0/8"), 1}}); err == nil {
		t.Error("a mark was taken by a set without marks")
	}
	if err := g.swap("KIPVS-A", "KIPVS-NONE"); !errors.Is(err, codeSecond) {
		t.Errorf("swap: got %v, want no second set", err)
	}
	if _, err := New(g).Destroy(t.Context()); err != nil {
		t.Error(err)
	}
}

// TestToolAgrees compares what the ipset program prints with what the same
// sets look like in the fake.
func TestToolAgrees(t *testing.T) {
	needKernel(t)
	want := node(map[string]*state.Set{
		"KIPVS-MARK":    marked(state.IPv4, map[state.Entry]uint32{port(state.TCP, "203.0.113.1:80"): 0x101}),
		"KIPVS-NET":     set(state.HashNet, state.IPv4, network("10.0.0.0/8")),
		"KIPVS6-SOURCE": set(state.HashIPPortNet, state.IPv6, portNet(state.UDP, "[fd00::1]:53", "2001:db8::/32")),
	})
	k, err := open()
	if err != nil {
		t.Fatal(err)
	}
	defer k.close()
	defer run(t, "ipset", "destroy")
	fake := NewFake()
	settle(t, k, want)
	settle(t, fake, want)
	if got, want := tidy(run(t, "ipset", "save")), fake.Save(); got != want {
		t.Errorf("ipset save prints\n%s\nthe fake prints\n%s", got, want)
	}
}

// tidy takes out of "ipset save" what the kernel chooses, and sorts it.
func tidy(save string) string {
	var out []string
	for line := range strings.Lines(save) {
		var kept []string
		fields := strings.Fields(line)
		for i := 0; i < len(fields); i++ {
			switch fields[i] {
			case "hashsize", "bucketsize", "initval":
				i++
				continue
			}
			kept = append(kept, fields[i])
		}
		out = append(out, strings.Join(kept, " "))
	}
	slices.SortStableFunc(out, func(a, b string) int {
		return strings.Compare(strings.Fields(a)[1], strings.Fields(b)[1])
	})
	return fmt.Sprintln(strings.Join(out, "\n"))
}
