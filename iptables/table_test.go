package iptables

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

func TestOrdinaryChangeStartsNoProcess(t *testing.T) {
	f := NewFake()
	table := New(f)
	change := &state.Change{}
	change.Server(state.ServerKey{Protocol: state.TCP, Port: 80})
	want := filterInput("-j RETURN")
	for _, layer := range []func() ([]state.Op, error){
		func() ([]state.Op, error) { return table.Ensure(t.Context(), want, change) },
		func() ([]state.Op, error) { return table.Prune(t.Context(), want, change) },
	} {
		if ops, err := layer(); len(ops) != 0 || err != nil {
			t.Errorf("operations %s, error %v", printed(ops), err)
		}
	}
	if f.Calls != 0 {
		t.Errorf("%d processes", f.Calls)
	}
}

func TestProcessesOfASync(t *testing.T) {
	f := NewFake()
	s := subject{Table: New(f)}
	s.sync(t, &state.Node{Rules: samples()})
	if want := 6; f.Calls != want {
		t.Errorf("first sync: %d processes, want %d: save, restore and save for each family", f.Calls, want)
	}
	f.Calls = 0
	s.sync(t, &state.Node{Rules: samples()})
	if want := 2; f.Calls != want {
		t.Errorf("second sync: %d processes, want %d: save for each family", f.Calls, want)
	}
}

func TestFormOfThePrinterIsRemembered(t *testing.T) {
	f := NewFake()
	k := reprinter{f, strings.NewReplacer("--ctstate ESTABLISHED,RELATED", "--ctstate RELATED,ESTABLISHED")}
	s := subject{Table: New(k)}
	want := filterInput("-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT")
	s.sync(t, want)
	equal(t, "second sync", s.sync(t, want), "")

	want = filterInput("-m conntrack --ctstate ESTABLISHED,RELATED -j DROP")
	equal(t, "another rule", s.sync(t, want), "iptables-restore --noflush *filter (1 rule)")
	equal(t, "and again", s.sync(t, want), "")

	if err := f.Restore(state.IPv4, "*filter\n:KIPVS-INPUT - [0:0]\n-A KIPVS-INPUT -j ACCEPT\nCOMMIT\n"); err != nil {
		t.Fatal(err)
	}
	equal(t, "after damage", s.sync(t, want), "iptables-restore --noflush *filter (1 rule)")
}

// reprinter is a kernel that prints rules in a form of its own.
type reprinter struct {
	*Fake
	form *strings.Replacer
}

func (r reprinter) save(ctx context.Context, f state.Family) (string, error) {
	text, err := r.Fake.save(ctx, f)
	return r.form.Replace(text), err
}

func TestFamilyThatIsNotThere(t *testing.T) {
	f := NewFake()
	f.Without = []state.Family{state.IPv6}
	table := New(f)
	ops, err := table.Ensure(t.Context(), &state.Node{Rules: samples()}, all())
	if err == nil || !strings.Contains(err.Error(), "ip6tables") {
		t.Errorf("error %v, want one about ip6tables", err)
	}
	if len(ops) == 0 || strings.Contains(printed(ops), "ip6tables") {
		t.Errorf("operations:\n%s", printed(ops))
	}
}

func TestLockHeld(t *testing.T) {
	f := NewFake()
	held := true
	f.Fault = func(call string) error {
		if held && strings.Contains(call, "restore") {
			return locked(errors.New("exit status 4: Another app is currently holding the xtables lock. Stopped waiting after 5s."))
		}
		return nil
	}
	s := subject{Table: New(f)}
	_, err := s.Ensure(t.Context(), &state.Node{Rules: samples()[:3]}, all())
	if !errors.Is(err, ErrLocked) {
		t.Errorf("error %v, want %v", err, ErrLocked)
	}
	if want := 4; f.Calls != want {
		t.Errorf("%d processes, want %d: two saves, one restore, one save", f.Calls, want)
	}
	held = false
	if got := s.sync(t, &state.Node{Rules: samples()[:3]}); got == "" {
		t.Error("nothing was done when the lock was free")
	}
}

// TestConvergesThroughFaults lets calls fail at random; when they stop
// failing, the rules are as wanted and a stranger's are as they were.
func TestConvergesThroughFaults(t *testing.T) {
	const strangers = "*filter\n:OTHER - [0:0]\n-A OTHER -j DROP\n-A INPUT -p sctp -j OTHER\nCOMMIT\n"
	for seed := range uint64(50) {
		random := rand.New(rand.NewPCG(seed, 1))
		f, clean := NewFake(), NewFake()
		for _, k := range []*Fake{f, clean} {
			if err := k.Restore(state.IPv4, strangers); err != nil {
				t.Fatal(err)
			}
		}
		f.Fault = func(call string) error {
			if random.IntN(3) == 0 {
				return fmt.Errorf("%s: injected", call)
			}
			return nil
		}
		faulty := New(f)
		wants := []*state.Node{{Rules: samples()}, filterInput("-j RETURN"), {Rules: samples()[1:4]}}
		for range 10 {
			want := wants[random.IntN(len(wants))]
			_ = faulty.Read(t.Context())
			if _, err := faulty.Ensure(t.Context(), want, all()); err == nil {
				_, _ = faulty.Prune(t.Context(), want, all())
			}
		}
		f.Fault = nil
		subject{Table: faulty}.sync(t, wants[0])
		subject{Table: New(clean)}.sync(t, wants[0])
		for _, family := range families {
			equal(t, fmt.Sprintf("seed %d, %s", seed, family), f.Save(family), clean.Save(family))
		}
	}
}

func TestProbeNamesWhatIsMissing(t *testing.T) {
	for _, test := range []struct {
		name  string
		lacks []string
		want  []string
	}{
		{"target", []string{"-j DNAT"}, []string{"table nat", "xt_nat"}},
		{"two", []string{"-m conntrack", "REJECT"}, []string{"xt_conntrack", "ipt_REJECT", "ip6t_REJECT", "table mangle"}},
		{"table", []string{"*nat"}, []string{"no table nat", "iptable_nat", "ip6table_nat"}},
		{"sets", []string{"-m set"}, []string{"xt_set", "ip_set"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			err := New(incomplete{NewFake(), test.lacks}).Probe(t.Context())
			if err == nil {
				t.Fatal("no error")
			}
			for _, w := range test.want {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in: %v", w, err)
				}
			}
		})
	}
}

// incomplete is a kernel that refuses input which contains one of some texts.
type incomplete struct {
	*Fake
	texts []string
}

func (l incomplete) restore(ctx context.Context, f state.Family, text string) error {
	for _, missing := range l.texts {
		if strings.Contains(text, missing) {
			return errors.New("iptables-restore: Extension set revision 0 not supported, missing kernel module?; Set KIPVS-PROBE doesn't exist.")
		}
	}
	return l.Fake.restore(ctx, f, text)
}

func TestRestartStartsTwoProcesses(t *testing.T) {
	f := NewFake()
	want := &state.Node{Rules: samples()}
	first := New(f)
	if _, err := first.Ensure(t.Context(), want, all()); err != nil {
		t.Fatal(err)
	}
	f.Calls = 0
	second := New(f)
	if err := errors.Join(second.Probe(t.Context()), second.Read(t.Context())); err != nil {
		t.Fatal(err)
	}
	if ops, err := second.Ensure(t.Context(), want, all()); len(ops) != 0 || err != nil {
		t.Errorf("%v, %v", ops, err)
	}
	if f.Calls != 2 {
		t.Errorf("%d processes, want 2: one save for each family", f.Calls)
	}
}
