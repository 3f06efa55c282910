package iptables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Fake is the kernel's iptables in memory, for tests. It holds the chains of
// both families, refuses what iptables refuses about chains, and prints as
// iptables-save does. Matches and targets it takes as they are given.
type Fake struct {
	// Fault, if set, is asked before each call and again after it, with the
	// call as a command. An error makes the call fail: before it without any
	// effect, after it as if only the answer were lost.
	Fault func(call string) error
	// Without are families that this kernel lacks.
	Without []state.Family
	// Sets, if set, says whether an ipset exists: a rule may only name one
	// that does.
	Sets func(name string) bool
	// Calls counts the processes that would have been started.
	Calls int

	mu     sync.Mutex
	tables map[tableID]*fakeTable
}

// fakeTable holds the chains of a table and their rules.
type fakeTable struct {
	builtin []string
	chains  map[string][]string
}

// builtinChains are the kernel's own chains of the tables that Fake has.
var builtinChains = map[string][]string{
	"filter": {"INPUT", "FORWARD", "OUTPUT"},
	"nat":    {"PREROUTING", "INPUT", "OUTPUT", "POSTROUTING"},
	"mangle": {"PREROUTING", "INPUT", "FORWARD", "OUTPUT", "POSTROUTING"},
}

// targets are what a rule may jump to besides chains.
var targets = []string{
	"ACCEPT", "DROP", "RETURN", "REJECT", "MARK", "SET", "DNAT", "SNAT", "MASQUERADE", "CT", "CONNMARK", "LOG", "NFLOG", "REDIRECT",
}

// setOptions are the options that a set's name follows.
var setOptions = []string{"--match-set", "--map-set", "--add-set", "--del-set"}

// NewFake returns a Fake without rules.
func NewFake() *Fake {
	f := &Fake{tables: map[tableID]*fakeTable{}}
	for _, family := range []state.Family{state.IPv4, state.IPv6} {
		for name, builtin := range builtinChains {
			t := &fakeTable{builtin: builtin, chains: map[string][]string{}}
			for _, c := range builtin {
				t.chains[c] = nil
			}
			f.tables[tableID{family, name}] = t
		}
	}
	return f
}

// Save returns a family's rules as iptables-save prints them, without its
// comment lines.
func (f *Fake) Save(family state.Family) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.print(family)
}

// Restore does what iptables-restore --noflush does with text, for tests in
// which somebody else changes rules.
func (f *Fake) Restore(family state.Family, text string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.feed(family, text)
}

func (f *Fake) print(family state.Family) string {
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(builtinChains)) {
		fmt.Fprintf(&b, "*%s\n", name)
		f.tables[tableID{family, name}].print(&b)
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

func (f *Fake) feed(family state.Family, text string) error {
	for block := range strings.SplitSeq(text, "COMMIT\n") {
		if strings.TrimSpace(block) == "" {
			continue
		}
		if err := f.commit(family, block); err != nil {
			return err
		}
	}
	return nil
}

func (f *Fake) families() []state.Family {
	return slices.DeleteFunc([]state.Family{state.IPv4, state.IPv6},
		func(family state.Family) bool { return slices.Contains(f.Without, family) })
}

func (f *Fake) save(ctx context.Context, family state.Family) (string, error) {
	var text string
	err := f.call(ctx, command(family)+"-save", func() error {
		text = f.print(family)
		return nil
	})
	return text, err
}

func (f *Fake) restore(ctx context.Context, family state.Family, text string) error {
	return f.call(ctx, command(family)+"-restore --noflush", func() error { return f.feed(family, text) })
}

func (f *Fake) delete(ctx context.Context, family state.Family, table, chain string, rule []string) error {
	line := "-D " + chain + " " + join(rule)
	return f.call(ctx, command(family)+" -t "+table+" "+line, func() error {
		err := f.feed(family, "*"+table+"\n"+line+"\n")
		if errors.Is(err, errNoRule) {
			return nil
		}
		return err
	})
}

func (f *Fake) randomFully() bool { return true }

// call runs one process between its faults.
func (f *Fake) call(ctx context.Context, name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.Calls++
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.Fault == nil {
		return do()
	}
	if err := f.Fault(name); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return f.Fault(name)
}

// commit carries out one table's lines, all or none.
func (f *Fake) commit(family state.Family, block string) error {
	lines := strings.Split(strings.TrimSpace(block), "\n")
	name, ok := strings.CutPrefix(lines[0], "*")
	id := tableID{family, name}
	if !ok || f.tables[id] == nil {
		return fmt.Errorf("unable to initialize table %q", name)
	}
	next := f.tables[id].clone()
	for i, line := range lines[1:] {
		if err := errors.Join(f.checkSets(line), next.apply(line)); err != nil {
			return fmt.Errorf("line %d (%s): %w", i+2, line, err)
		}
	}
	if err := next.check(); err != nil {
		return err
	}
	f.tables[id] = next
	return nil
}

// checkSets refuses a rule that names a set that is not there.
func (f *Fake) checkSets(rule string) error {
	w := words(rule)
	for i, word := range w[:max(0, len(w)-1)] {
		if !slices.Contains(setOptions, word) || f.Sets == nil || f.Sets(w[i+1]) {
			continue
		}
		return fmt.Errorf("set %s doesn't exist", w[i+1])
	}
	return nil
}

func (t *fakeTable) clone() *fakeTable {
	c := &fakeTable{builtin: t.builtin, chains: map[string][]string{}}
	for name, rules := range t.chains {
		c.chains[name] = slices.Clone(rules)
	}
	return c
}

var (
	errNoRule  = errors.New("bad rule (does a matching rule exist in that chain?)")
	errNoChain = errors.New("no chain/target/match by that name")
)

// apply carries out one line of iptables-restore's input.
func (t *fakeTable) apply(line string) error {
	verb, rest, _ := strings.Cut(line, " ")
	if name, ok := strings.CutPrefix(verb, ":"); ok {
		return t.declare(name)
	}
	chain, rule, _ := strings.Cut(rest, " ")
	rules, ok := t.chains[chain]
	if !ok {
		return errNoChain
	}
	switch verb {
	case "-A":
		if err := t.complain(rule); err != nil {
			return err
		}
		t.chains[chain] = append(rules, rule)
	case "-I":
		at, rule, err := position(rule, len(rules))
		if err := errors.Join(err, t.complain(rule)); err != nil {
			return err
		}
		t.chains[chain] = slices.Insert(rules, at, rule)
	case "-D":
		i := slices.Index(rules, rule)
		if i < 0 {
			return errNoRule
		}
		t.chains[chain] = slices.Delete(rules, i, i+1)
	case "-F":
		t.chains[chain] = nil
	case "-X":
		return t.deleteChain(chain)
	default:
		return fmt.Errorf("unknown command %q", verb)
	}
	return nil
}

// declare makes a chain, or flushes one that is there.
func (t *fakeTable) declare(name string) error {
	if slices.Contains(t.builtin, name) {
		return nil
	}
	if len(name) > 28 {
		return fmt.Errorf("chain name %q too long (must be under 29 chars)", name)
	}
	t.chains[name] = nil
	return nil
}

func (t *fakeTable) deleteChain(name string) error {
	if len(t.chains[name]) > 0 {
		return errors.New("directory not empty")
	}
	for _, rules := range t.chains {
		if slices.ContainsFunc(rules, func(r string) bool { return target(r) == name }) {
			return errors.New("too many links")
		}
	}
	if slices.Contains(t.builtin, name) {
		return errors.New("invalid argument")
	}
	delete(t.chains, name)
	return nil
}

// complain refuses a rule that jumps to what is not there.
func (t *fakeTable) complain(rule string) error {
	to := target(rule)
	if to == "" || slices.Contains(targets, to) {
		return nil
	}
	if _, ok := t.chains[to]; !ok || slices.Contains(t.builtin, to) {
		return fmt.Errorf("couldn't load target `%s': no such file or directory", to)
	}
	return nil
}

// check refuses a ruleset in which chains jump in a circle.
func (t *fakeTable) check() error {
	done, path := map[string]bool{}, map[string]bool{}
	var visit func(chain string) error
	visit = func(chain string) error {
		if path[chain] {
			return errors.New("too many levels of symbolic links")
		}
		if done[chain] {
			return nil
		}
		path[chain] = true
		for _, r := range t.chains[chain] {
			if err := visit(target(r)); err != nil {
				return err
			}
		}
		path[chain], done[chain] = false, true
		return nil
	}
	// The kernel follows packets only: from its own chains.
	for _, c := range t.builtin {
		if err := visit(c); err != nil {
			return err
		}
	}
	return nil
}

func (t *fakeTable) print(b *strings.Builder) {
	names := slices.Clone(t.builtin)
	for _, name := range slices.Sorted(maps.Keys(t.chains)) {
		if !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	for _, name := range names {
		policy := "-"
		if slices.Contains(t.builtin, name) {
			policy = "ACCEPT"
		}
		fmt.Fprintf(b, ":%s %s [0:0]\n", name, policy)
	}
	for _, name := range names {
		for _, rule := range t.chains[name] {
			fmt.Fprintf(b, "-A %s %s\n", name, rule)
		}
	}
}

// target returns what a rule jumps to.
func target(rule string) string {
	w := words(rule)
	if to := after(w, "-j"); to != "" {
		return to
	}
	return after(w, "-g")
}

// position splits "[NUMBER] RULE" and returns the index for an insertion into
// n rules.
func position(text string, n int) (int, string, error) {
	first, rest, _ := strings.Cut(text, " ")
	number, err := strconv.Atoi(first)
	if err != nil {
		return 0, text, nil
	}
	if number < 1 || number > n+1 {
		return 0, rest, errors.New("index of insertion too big")
	}
	return number - 1, rest, nil
}

// join turns arguments into a rule, with quotes where words need them.
func join(rule []string) string {
	quoted := make([]string, len(rule))
	for i, w := range rule {
		quoted[i] = w
		if w == "" || strings.ContainsAny(w, " \"\\") {
			quoted[i] = strconv.Quote(w)
		}
	}
	return strings.Join(quoted, " ")
}
