package iptables

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

var families = []state.Family{state.IPv4, state.IPv6}

// subject is a kernel under the contract, beside the Table that uses it.
type subject struct {
	*Table
	// feed does what somebody else may do with iptables-restore --noflush.
	feed func(t *testing.T, f state.Family, text string)
	// show returns what iptables-save prints.
	show func(t *testing.T, f state.Family) string
}

// fakeSubject returns the fake under the contract.
func fakeSubject(t *testing.T) subject {
	f := NewFake()
	f.Sets = func(name string) bool { return name != probeChain && !strings.HasSuffix(name, "-NOSUCH") }
	return subject{
		Table: New(f),
		feed: func(t *testing.T, family state.Family, text string) {
			if err := f.Restore(family, text); err != nil {
				t.Fatal(err)
			}
		},
		show: func(_ *testing.T, family state.Family) string { return f.Save(family) },
	}
}

// kernelSubject returns the running kernel under the contract, in a network
// namespace of its own that has the sets which the rules name.
func kernelSubject(t *testing.T) subject {
	if os.Getenv("KUBE_IPVS_KERNEL") != "1" {
		t.Skip("KUBE_IPVS_KERNEL is not 1: no kernel to test on")
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("making a network namespace:", err)
	}
	makeSets(t)
	flavour, err := detected()
	if err != nil {
		t.Fatal(err)
	}
	flavour.saved = nil // of another namespace
	return subject{
		Table: Open(flavour),
		feed: func(t *testing.T, f state.Family, text string) {
			if _, err := run(t.Context(), text, flavour.program(f)+"-restore", "--noflush"); err != nil {
				t.Fatal(err)
			}
		},
		show: func(t *testing.T, f state.Family) string {
			text, err := run(t.Context(), "", flavour.program(f)+"-save")
			if err != nil {
				t.Fatal(err)
			}
			return text
		},
	}
}

// detected is the kernel's flavour. Finding it takes several processes.
var detected = sync.OnceValues(func() (Flavour, error) {
	f, _, err := Detect(context.Background(), "")
	return f, err
})

func makeSets(t *testing.T) {
	var script strings.Builder
	for _, f := range families {
		family := map[state.Family]string{state.IPv4: " family inet", state.IPv6: " family inet6"}[f]
		for _, set := range []string{"POD hash:net", "SHORTCUT hash:ip,port skbinfo", "DROP hash:ip,port", "CLUSTER hash:ip,port",
			"REFUSE hash:ip,port", "ADDRESS hash:ip"} {
			script.WriteString("create " + setPrefix(f) + set + family + "\n")
		}
	}
	cmd := exec.Command("ipset", "restore")
	cmd.Stdin = strings.NewReader(script.String())
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("ipset restore: %v: %s", err, out)
	}
}

func setPrefix(f state.Family) string {
	if f == state.IPv6 {
		return "KIPVS6-"
	}
	return "KIPVS-"
}

// contract runs a test against the fake and against the kernel.
func contract(t *testing.T, test func(*testing.T, subject)) {
	t.Run("fake", func(t *testing.T) { test(t, fakeSubject(t)) })
	t.Run("kernel", func(t *testing.T) { test(t, kernelSubject(t)) })
}

// samples returns tables with every kind of rule that the project uses.
func samples() []state.Table {
	var all []state.Table
	for _, f := range families {
		p, lo, unreachable, ping := setPrefix(f), "127.0.0.1:9", "icmp-port-unreachable", "-p icmp -m icmp --icmp-type 8"
		if f == state.IPv6 {
			lo, unreachable, ping = "[::1]:9", "icmp6-port-unreachable", "-p ipv6-icmp -m icmp6 --icmpv6-type 128"
		}
		all = append(all,
			state.Table{Family: f, Name: "mangle",
				Chains: []state.Chain{{Name: "KIPVS-PREROUTING", Rules: []string{
					"-m set --match-set " + p + "POD src -m set --match-set " + p + "SHORTCUT dst,dst -j SET --map-set " + p + "SHORTCUT dst,dst --map-mark",
					"-m set --match-set " + p + "DROP dst,dst -m mark ! --mark 0x4b000000/0xff000000 -m conntrack --ctstate NEW -j DROP",
				}}, {Name: "KIPVS-INPUT", Rules: []string{
					"-m mark --mark 0x4b000000/0xff000000 -j MARK --set-xmark 0x0/0xffffffff",
				}}},
				Jumps: []state.Jump{{From: "PREROUTING", To: "KIPVS-PREROUTING"}, {From: "INPUT", To: "KIPVS-INPUT"}}},
			state.Table{Family: f, Name: "nat",
				Chains: []state.Chain{{Name: "KIPVS-PREROUTING", Rules: []string{
					"-p tcp -m set --match-set " + p + "REFUSE dst,dst -j DNAT --to-destination " + lo,
					"-m set ! --match-set " + p + "POD src -m set --match-set " + p + "CLUSTER dst,dst -j KIPVS-MASQ",
				}}, {Name: "KIPVS-MASQ", Rules: []string{
					"-j MARK --set-xmark 0x4000/0x4000",
				}}, {Name: "KIPVS-POSTROUTING", Rules: []string{
					"-m set --match-set " + p + "ADDRESS src -j MASQUERADE --random-fully",
					"-m mark ! --mark 0x4000/0x4000 -j RETURN",
					"-j MARK --set-xmark 0x4000/0x0",
					"-j MASQUERADE --random-fully",
				}}},
				Jumps: []state.Jump{{From: "PREROUTING", To: "KIPVS-PREROUTING"}, {From: "POSTROUTING", To: "KIPVS-POSTROUTING"}}},
			state.Table{Family: f, Name: "filter",
				Chains: []state.Chain{{Name: "KIPVS-INPUT", Rules: []string{
					"-p tcp -m set --match-set " + p + "REFUSE dst,dst -m conntrack --ctstate NEW -j REJECT --reject-with tcp-reset",
					"-m set --match-set " + p + "REFUSE dst,dst -m conntrack --ctstate NEW -j REJECT --reject-with " + unreachable,
					ping + " -m set --match-set " + p + "ADDRESS dst -j ACCEPT",
					"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT",
				}}, {Name: "KIPVS-EMPTY", Rules: nil}},
				Jumps: []state.Jump{{From: "INPUT", To: "KIPVS-INPUT"}, {From: "OUTPUT", To: "KIPVS-INPUT"}}},
		)
	}
	return all
}

// filterInput is a small want: one chain and its jump.
func filterInput(rules ...string) *state.Node {
	return &state.Node{Rules: []state.Table{{Family: state.IPv4, Name: "filter",
		Chains: []state.Chain{{Name: "KIPVS-INPUT", Rules: rules}},
		Jumps:  []state.Jump{{From: "INPUT", To: "KIPVS-INPUT"}}}}}
}

func all() *state.Change { return &state.Change{All: true} }

func printed(ops []state.Op) string {
	var lines []string
	for _, op := range ops {
		lines = append(lines, op.String())
	}
	return strings.Join(lines, "\n")
}

// sync reads, ensures and prunes, and returns what was done.
func (s subject) sync(t *testing.T, want *state.Node) string {
	t.Helper()
	if err := s.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	ops, err := s.Ensure(t.Context(), want, all())
	if err != nil {
		t.Fatal(err)
	}
	pruned, err := s.Prune(t.Context(), want, all())
	if err != nil {
		t.Fatal(err)
	}
	return printed(append(ops, pruned...))
}

// chain returns the rules of a chain as iptables-save prints them.
func (s subject) chain(t *testing.T, f state.Family, table, chain string) []string {
	t.Helper()
	return chainOf(s.show(t, f), table, chain)
}

// chainOf returns the rules of a chain out of what iptables-save printed.
func chainOf(save, table, chain string) []string {
	var (
		rules []string
		in    bool
	)
	for line := range strings.Lines(save) {
		line = strings.TrimSpace(line)
		if strings.HasPrefix(line, "*") {
			in = line == "*"+table
		}
		if rule, ok := strings.CutPrefix(line, "-A "+chain+" "); ok && in {
			rules = append(rules, rule)
		}
	}
	return rules
}

func equal(t *testing.T, what, got, want string) {
	t.Helper()
	if got != want {
		t.Errorf("%s:\n got %s\nwant %s", what, strings.ReplaceAll(got, "\n", "\n     "), strings.ReplaceAll(want, "\n", "\n     "))
	}
}

func TestRulesArePrintedAsGiven(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		want := &state.Node{Rules: samples()}
		s.sync(t, want)
		saved := map[state.Family]string{}
		for _, f := range families {
			saved[f] = s.show(t, f)
		}
		for _, w := range want.Rules {
			for _, c := range w.Chains {
				if got := chainOf(saved[w.Family], w.Name, c.Name); !slices.Equal(got, c.Rules) {
					t.Errorf("%s %s %s:\n got %q\nwant %q", w.Family, w.Name, c.Name, got, c.Rules)
				}
			}
			for _, j := range w.Jumps {
				got := chainOf(saved[w.Family], w.Name, j.From)
				if rule := "-m comment --comment kube-ipvs -j " + j.To; !slices.Contains(got, rule) {
					t.Errorf("%s %s %s: no %q in %q", w.Family, w.Name, j.From, rule, got)
				}
			}
		}
		equal(t, "second sync", s.sync(t, want), "")
	})
}

func TestFirstSyncOperations(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		want := filterInput("-p tcp -j ACCEPT", "-j RETURN")
		equal(t, "operations", s.sync(t, want), `iptables-restore --noflush *filter (2 rules)
iptables -t filter -I INPUT 1 -m comment --comment kube-ipvs -j KIPVS-INPUT`)
	})
}

func TestSeveralJumpsOfOneChainKeepTheirOrder(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		want := filterInput("-j RETURN")
		r := &want.Rules[0]
		r.Chains = append(r.Chains, state.Chain{Name: "KIPVS-FIREWALL", Rules: []string{"-j RETURN"}})
		r.Jumps = append(r.Jumps, state.Jump{From: "INPUT", To: "KIPVS-FIREWALL"})
		s.sync(t, want)
		equal(t, "INPUT", strings.Join(s.chain(t, state.IPv4, "filter", "INPUT"), "\n"),
			"-m comment --comment kube-ipvs -j KIPVS-INPUT\n-m comment --comment kube-ipvs -j KIPVS-FIREWALL")
	})
}

func TestJumpIsInsertedFirstAndThenLeftAlone(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		want := filterInput("-j RETURN")
		s.feed(t, state.IPv4, "*filter\n-A INPUT -p udp -j ACCEPT\nCOMMIT\n")
		s.sync(t, want)
		s.feed(t, state.IPv4, "*filter\n-I INPUT 1 -p tcp -j ACCEPT\nCOMMIT\n")
		equal(t, "sync after somebody's insertion", s.sync(t, want), "")
		equal(t, "INPUT", strings.Join(s.chain(t, state.IPv4, "filter", "INPUT"), "\n"),
			"-p tcp -j ACCEPT\n-m comment --comment kube-ipvs -j KIPVS-INPUT\n-p udp -j ACCEPT")
	})
}

func TestRepair(t *testing.T) {
	const insertion = "iptables -t filter -I INPUT 1 -m comment --comment kube-ipvs -j KIPVS-INPUT"
	damages := []struct{ name, damage, repair string }{
		{"chain flushed", "-F KIPVS-INPUT", "iptables-restore --noflush *filter (1 rule)"},
		{"rule added", "-A KIPVS-INPUT -j DROP", "iptables-restore --noflush *filter (1 rule)"},
		{"jump deleted", "-D INPUT -m comment --comment kube-ipvs -j KIPVS-INPUT", insertion},
		{"all flushed", "-F INPUT\n-F KIPVS-INPUT\n-X KIPVS-INPUT", "iptables-restore --noflush *filter (1 rule)\n" + insertion},
		{"second jump", "-A INPUT -m comment --comment kube-ipvs -j KIPVS-INPUT",
			"iptables -t filter -D INPUT -m comment --comment kube-ipvs -j KIPVS-INPUT"},
	}
	contract(t, func(t *testing.T, s subject) {
		want := filterInput("-p tcp -j ACCEPT")
		s.sync(t, want)
		before := rulesOf(s.show(t, state.IPv4))
		for _, test := range damages {
			s.feed(t, state.IPv4, "*filter\n"+test.damage+"\nCOMMIT\n")
			equal(t, test.name+": repair", s.sync(t, want), test.repair)
			equal(t, test.name+": rules", rulesOf(s.show(t, state.IPv4)), before)
		}
	})
}

// rulesOf leaves the comment lines of iptables-save out, which hold the time.
func rulesOf(save string) string {
	var lines []string
	for line := range strings.Lines(save) {
		if !strings.HasPrefix(line, "#") {
			lines = append(lines, line)
		}
	}
	return strings.Join(lines, "")
}

func TestPruneTakesOursAndLeavesTheRest(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		const strangers = `*filter
:KUBE-FIREWALL - [0:0]
-A KUBE-FIREWALL -m mark --mark 0x8000/0x8000 -j DROP
-A INPUT -m comment --comment "a kube-ipvs comment" -j KUBE-FIREWALL
-A INPUT -m comment --comment kube-ipvs -j ACCEPT
COMMIT
`
		for _, f := range families {
			s.feed(t, f, strangers)
		}
		s.sync(t, &state.Node{Rules: samples()[1:4]})
		for _, f := range families {
			s.feed(t, f, `*nat
:KIPVS-OLD-A - [0:0]
:KIPVS-OLD-B - [0:0]
-A KIPVS-OLD-A -j KIPVS-OLD-B
-A OUTPUT -p tcp -m comment --comment kube-ipvs -j KIPVS-OLD-A
COMMIT
`)
		}
		done := s.sync(t, state.NewNode())
		for _, line := range []string{
			"iptables -t nat -D OUTPUT -p tcp -m comment --comment kube-ipvs -j KIPVS-OLD-A",
			"ip6tables -t nat -X KIPVS-OLD-B",
			"ip6tables -t mangle -D PREROUTING -m comment --comment kube-ipvs -j KIPVS-PREROUTING",
		} {
			if !strings.Contains(done+"\n", line+"\n") {
				t.Errorf("no %q in\n%s", line, done)
			}
		}
		for _, f := range families {
			got := s.show(t, f)
			if strings.Contains(got, Prefix) {
				t.Errorf("%s: something of ours is left:\n%s", f, got)
			}
			if rules := chainOf(got, "filter", "INPUT"); len(rules) != 2 {
				t.Errorf("%s: somebody's two rules are now %q", f, rules)
			}
		}
		equal(t, "again", s.sync(t, state.NewNode()), "")
	})
}

func TestBadTableHoldsUpNoOther(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		want := filterInput("-p tcp -j ACCEPT")
		want.Rules = append(want.Rules, state.Table{Family: state.IPv4, Name: "nat",
			Chains: []state.Chain{{Name: "KIPVS-MASQ", Rules: []string{"-j RETURN"}}}})
		s.sync(t, want)

		want.Rules[0].Chains[0].Rules = []string{"-p udp -j ACCEPT", "-m set --match-set KIPVS-NOSUCH dst -j ACCEPT"}
		want.Rules[1].Chains[0].Rules = []string{"-p tcp -j RETURN"}
		ops, err := s.Ensure(t.Context(), want, all())
		if err == nil || !strings.Contains(err.Error(), "filter (IPv4)") || !strings.Contains(err.Error(), "KIPVS-NOSUCH") {
			t.Errorf("error %v, want one that names the table and the set", err)
		}
		equal(t, "operations", printed(ops), "iptables-restore --noflush *nat (1 rule)")
		if got := s.chain(t, state.IPv4, "filter", "KIPVS-INPUT"); !slices.Equal(got, []string{"-p tcp -j ACCEPT"}) {
			t.Errorf("the refused table is not as before: %q", got)
		}
		want.Rules[0].Chains[0].Rules = []string{"-p udp -j ACCEPT"}
		equal(t, "afterwards", s.sync(t, want), "iptables-restore --noflush *filter (1 rule)")
	})
}

func TestRefusals(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		for _, text := range []string{
			"*filter\n:KIPVS-A - [0:0]\n-A KIPVS-A -j KIPVS-NOSUCH\nCOMMIT\n",
			"*filter\n-I INPUT 1 -m comment --comment kube-ipvs -j KIPVS-NOSUCH\nCOMMIT\n",
			"*filter\n-A KIPVS-NOSUCH -j RETURN\nCOMMIT\n",
			"*filter\n:KIPVS-A - [0:0]\n-A INPUT -j KIPVS-A\n-X KIPVS-A\nCOMMIT\n",
			"*filter\n:KIPVS-A - [0:0]\n-A KIPVS-A -j RETURN\n-X KIPVS-A\nCOMMIT\n",
			"*filter\n:KIPVS-A-NAME-THAT-IS-TOO-LONG-BY-FAR - [0:0]\nCOMMIT\n",
			"*filter\n:KIPVS-A - [0:0]\n:KIPVS-B - [0:0]\n-A KIPVS-A -j KIPVS-B\n-A KIPVS-B -j KIPVS-A\n-A INPUT -j KIPVS-A\nCOMMIT\n",
			"*nosuch\nCOMMIT\n",
		} {
			if err := s.kernel.restore(t.Context(), state.IPv4, text); err == nil {
				t.Errorf("taken:\n%s", text)
			}
		}
		if got := s.show(t, state.IPv4); strings.Contains(got, Prefix) {
			t.Errorf("a refused table was written:\n%s", got)
		}
		rule := newJump(state.Jump{From: "INPUT", To: "KIPVS-A"}).words()
		if err := s.kernel.delete(t.Context(), state.IPv4, "filter", "INPUT", rule); err != nil {
			t.Error("deleting what is gone:", err)
		}
	})
}

func TestOtherNotationIsWrittenOnce(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		want := filterInput("-m conntrack --ctstate ESTABLISHED,RELATED -j ACCEPT", "-j MARK --set-mark 1")
		s.sync(t, want)
		equal(t, "second sync", s.sync(t, want), "")
		s.feed(t, state.IPv4, "*filter\n-D KIPVS-INPUT -j MARK --set-mark 1\nCOMMIT\n")
		equal(t, "after damage", s.sync(t, want), "iptables-restore --noflush *filter (2 rules)")
	})
}

func TestProbe(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		if err := s.Probe(t.Context()); err != nil {
			t.Fatal(err)
		}
		for _, f := range families {
			if strings.Contains(s.show(t, f), Prefix) {
				t.Errorf("%s: Probe left something", f)
			}
		}
	})
}

func TestRemoveAllTwice(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		s.sync(t, &state.Node{Rules: samples()[2:4]})
		if ops, err := s.RemoveAll(t.Context()); err != nil || len(ops) == 0 {
			t.Fatalf("removing: %d operations, %v", len(ops), err)
		}
		if ops, err := s.RemoveAll(t.Context()); err != nil || len(ops) != 0 {
			t.Errorf("removing what is gone: %s, %v", printed(ops), err)
		}
	})
}

func TestCancelledContext(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := s.Read(ctx); !errors.Is(err, context.Canceled) {
			t.Errorf("error %v, want %v", err, context.Canceled)
		}
	})
}

func TestRandomFully(t *testing.T) {
	contract(t, func(t *testing.T, s subject) {
		if !s.HasRandomFully() {
			t.Error("iptables 1.6.2 and newer know --random-fully")
		}
	})
}
