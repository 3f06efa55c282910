package ipset

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// calls counts the calls to a fake.
func calls(f *Fake) *[]string {
	var seen []string
	f.Fault = func(call string) error {
		seen = append(seen, call)
		return nil
	}
	return &seen
}

func TestOnlyTheChangeIsLookedAt(t *testing.T) {
	f := NewFake()
	a, b, c := addr("10.0.0.1"), addr("10.0.0.2"), addr("10.0.0.3")
	table := New(f)
	mustSync(t, table, node(map[string]*state.Set{
		"KIPVS-A": set(state.HashIP, state.IPv4, a), "KIPVS-B": set(state.HashIP, state.IPv4, a)}))

	want := node(map[string]*state.Set{
		"KIPVS-A": set(state.HashIP, state.IPv4, b, c), "KIPVS-B": set(state.HashIP, state.IPv4, c)})
	change := &state.Change{}
	change.Entry("KIPVS-A", a)
	change.Entry("KIPVS-A", b)
	change.Entry("KIPVS-C", b)

	seen := calls(f)
	done, err := table.Ensure(t.Context(), want, change)
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "add KIPVS-A 10.0.0.2")
	done, err = table.Prune(t.Context(), want, change)
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "del KIPVS-A 10.0.0.1")
	expect(t, *seen, "add KIPVS-A", "add KIPVS-A", "del KIPVS-A", "del KIPVS-A")
}

func TestNothingToDoCallsNothing(t *testing.T) {
	f := NewFake()
	want := node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1"))})
	table := New(f)
	mustSync(t, table, want)
	seen := calls(f)
	mustEnsure(t, table, want)
	if _, err := table.Prune(t.Context(), want, all()); err != nil {
		t.Error(err)
	}
	expect(t, *seen)
}

func TestSetOrder(t *testing.T) {
	want := state.NewNode()
	want.Sets = map[string]*state.Set{
		"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1"), addr("10.0.0.2")),
		"KIPVS-B": set(state.HashIP, state.IPv4, addr("10.0.0.1")),
	}
	want.SetOrder = []string{"KIPVS-B", "KIPVS-A"}
	table := New(NewFake())
	done, err := table.Ensure(t.Context(), want, all())
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done),
		"create KIPVS-B hash:ip family inet maxelem 1048576",
		"add KIPVS-B 10.0.0.1",
		"create KIPVS-A hash:ip family inet maxelem 1048576",
		"add KIPVS-A 10.0.0.1",
		"add KIPVS-A 10.0.0.2")
	clear(want.Sets["KIPVS-A"].Entries)
	clear(want.Sets["KIPVS-B"].Entries)
	done, err = table.Prune(t.Context(), want, all())
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "del KIPVS-A 10.0.0.1", "del KIPVS-A 10.0.0.2", "del KIPVS-B 10.0.0.1")
}

func TestReadKeepsTheBeliefOnError(t *testing.T) {
	f := NewFake()
	want := node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1"))})
	table := New(f)
	mustSync(t, table, want)
	f.Fault = func(call string) error {
		if call == "list KIPVS-A" {
			return unix.EIO
		}
		return nil
	}
	if err := table.Read(t.Context()); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if len(table.Entries("KIPVS-A")) != 1 {
		t.Error("the belief was lost")
	}
}

func TestErrorsAreCounted(t *testing.T) {
	entries := map[state.Entry]uint32{addr("10.0.0.1"): 0}
	for i := range 100 {
		entries[network(fmt.Sprintf("10.%d.0.0/16", i))] = 0
	}
	table := New(NewFake())
	_, err := table.Ensure(t.Context(), node(map[string]*state.Set{
		"KIPVS-A": {Type: state.HashIP, Family: state.IPv4, Entries: entries}}), all())
	if err == nil {
		t.Fatal("no error")
	}
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != maxErrors+1 || lines[maxErrors] != "ipset KIPVS-A: 92 more entries failed" {
		t.Errorf("got\n%s", err)
	}
	if len(table.Entries("KIPVS-A")) != 1 {
		t.Error("the good entry is missing")
	}
}

func TestMissingModuleAndRight(t *testing.T) {
	for _, test := range []struct {
		call string
		err  error
		want []string
	}{
		{"destroy KIPVS-PROBE", unix.EPERM, []string{"NET_ADMIN"}},
		{"destroy KIPVS-PROBE", unix.EINVAL, []string{`"modprobe -a ip_set"`, "kernel-modules-extra"}},
		{"create KIPVS-PROBE", codeType, []string{"ip_set_hash_ip ip_set_hash_net ip_set_hash_ipport ip_set_hash_ipportip ip_set_hash_ipportnet"}},
	} {
		f := NewFake()
		f.Fault = func(call string) error {
			if call == test.call {
				return test.err
			}
			return nil
		}
		err := New(f).Probe()
		for _, part := range test.want {
			if err == nil || !strings.Contains(err.Error(), part) {
				t.Errorf("the error does not say %q: %v", part, err)
			}
		}
	}
}

// TestFaults fails one call in ten, before or after it took effect. When the
// faults stop, one more sync reaches what is wanted.
func TestFaults(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := NewFake()
		f.Put("KUBE-CLUSTER-IP", *set(state.HashIPPort, state.IPv4, port(state.TCP, "10.96.0.1:443")))
		table := New(f)
		for range 10 {
			want := randomNode(rnd)
			f.Fault = func(string) error {
				if rnd.IntN(10) == 0 {
					return unix.EIO
				}
				return nil
			}
			for range 3 {
				_ = table.Read(t.Context())
				_, _ = table.Ensure(t.Context(), want, all())
				_, _ = table.Prune(t.Context(), want, all())
			}
			f.Fault = nil
			mustSync(t, table, want)
			assertSame(t, f, want)
		}
		if t.Failed() {
			t.Fatalf("seed %d", seed)
		}
	}
}

// assertSame compares a fake with one that was filled in one go.
func assertSame(t *testing.T, f *Fake, want *state.Node) {
	t.Helper()
	fresh := NewFake()
	fresh.Put("KUBE-CLUSTER-IP", *set(state.HashIPPort, state.IPv4, port(state.TCP, "10.96.0.1:443")))
	mustSync(t, New(fresh), want)
	if got, want := f.Save(), fresh.Save(); got != want {
		// A set that has more options than are wanted stays.
		if got = strings.ReplaceAll(got, " skbinfo", ""); got != strings.ReplaceAll(want, " skbinfo", "") {
			t.Errorf("got\n%s\nwant\n%s", got, want)
		}
	}
}

func randomNode(rnd *rand.Rand) *state.Node {
	sets := map[string]*state.Set{}
	for _, name := range []string{"KIPVS-A", "KIPVS-B", "KIPVS-C"} {
		s := &state.Set{Type: state.HashIPPort, Family: state.IPv4, Entries: map[state.Entry]uint32{}}
		if rnd.IntN(4) == 0 {
			s.Type = state.HashIP
		}
		s.Marks = rnd.IntN(2) == 0
		for range rnd.IntN(6) {
			e := port(state.TCP, fmt.Sprintf("10.96.0.%d:80", rnd.IntN(6)+1))
			if s.Type == state.HashIP {
				e = state.IPEntry(e.Addr)
			}
			s.Entries[e] = 0
			if s.Marks {
				s.Entries[e] = uint32(rnd.IntN(3))
			}
		}
		if rnd.IntN(5) > 0 {
			sets[name] = s
		}
	}
	return node(sets)
}

// failing returns a fault that fails the calls of one name.
func failing(name string) func(string) error {
	return func(call string) error {
		if call == name {
			return unix.EIO
		}
		return nil
	}
}

func TestAFailedCreateIsReportedOnce(t *testing.T) {
	f := NewFake()
	f.Fault = failing("create KIPVS-A")
	done, err := New(f).Ensure(t.Context(), node(map[string]*state.Set{
		"KIPVS-A": set(state.HashIP, state.IPv4, addr("10.0.0.1")),
		"KIPVS-B": set(state.HashIP, state.IPv4, addr("10.0.0.1")),
	}), all())
	expect(t, texts(done), "create KIPVS-B hash:ip family inet maxelem 1048576", "add KIPVS-B 10.0.0.1")
	if err == nil || strings.Contains(err.Error(), "\n") {
		t.Errorf("got %v, want one error", err)
	}
}

func TestAnIncompleteSetIsNotSwappedIn(t *testing.T) {
	f := NewFake()
	e := port(state.TCP, "203.0.113.1:80")
	f.Put("KIPVS-A", *set(state.HashIPPort, state.IPv4, e))
	before := f.Save()
	table := New(f)
	if err := table.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	f.Fault = failing("add KIPVS-NEXT")
	want := node(map[string]*state.Set{"KIPVS-A": marked(state.IPv4, map[state.Entry]uint32{e: 1})})
	if _, err := table.Ensure(t.Context(), want, all()); !errors.Is(err, unix.EIO) {
		t.Errorf("got %v, want EIO", err)
	}
	if got := f.Save(); !strings.HasPrefix(got, before) {
		t.Errorf("got\n%s\nwant at first\n%s", got, before)
	}
	f.Fault = nil
	settle(t, f, want)
}

func TestOnlyAllDestroys(t *testing.T) {
	table := New(NewFake())
	a, b := addr("10.0.0.1"), addr("10.0.0.2")
	mustSync(t, table, node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, a, b)}))
	change := &state.Change{}
	change.Entry("KIPVS-A", a)
	done, err := table.Prune(t.Context(), state.NewNode(), change)
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "del KIPVS-A 10.0.0.1")
}

// picky is a kernel that refuses one entry and keeps those before it.
type picky struct {
	*Fake
	bad state.Entry
}

func (p picky) add(set string, members []member) error {
	for i, m := range members {
		if m.entry == p.bad {
			return errors.Join(p.Fake.add(set, members[:i]), &refusal{i, unix.EIO})
		}
	}
	return p.Fake.add(set, members)
}

func TestWhatPrecedesARefusalIsBelieved(t *testing.T) {
	a, bad, c := addr("10.0.0.1"), addr("10.0.0.2"), addr("10.0.0.3")
	table := New(picky{NewFake(), bad})
	done, err := table.Ensure(t.Context(), node(map[string]*state.Set{"KIPVS-A": set(state.HashIP, state.IPv4, a, bad, c)}), all())
	if !errors.Is(err, unix.EIO) || !strings.HasPrefix(err.Error(), "ipset add KIPVS-A 10.0.0.2: ") {
		t.Errorf("got %v", err)
	}
	expect(t, texts(done),
		"create KIPVS-A hash:ip family inet maxelem 1048576", "add KIPVS-A 10.0.0.1", "add KIPVS-A 10.0.0.3")
	if got := table.Entries("KIPVS-A"); len(got) != 2 {
		t.Errorf("got %v", got)
	}
}
