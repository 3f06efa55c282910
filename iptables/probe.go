package iptables

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// probeChain is made and deleted by Probe.
const probeChain = Prefix + "PROBE"

// requirement is a match or target that our rules use, tried in a rule.
type requirement struct {
	rule   string
	module string // the kernel module that has it
}

// requirements returns what our rules need in a family, by table.
func requirements(f state.Family, randomFully bool) map[string][]requirement {
	reject, icmp, loopback := "icmp-port-unreachable", "-p icmp -m icmp --icmp-type 8 -j ACCEPT", "127.0.0.1:9"
	rejectModule, icmpModule := "ipt_REJECT", "ip_tables"
	if f == state.IPv6 {
		reject, icmp, loopback = "icmp6-port-unreachable", "-p ipv6-icmp -m icmp6 --icmpv6-type 128 -j ACCEPT", "[::1]:9"
		rejectModule, icmpModule = "ip6t_REJECT", "ip6_tables"
	}
	masquerade := "-j MASQUERADE"
	if randomFully {
		masquerade += " --random-fully"
	}
	common := []requirement{
		{"-m addrtype --src-type LOCAL -j RETURN", "xt_addrtype"},
		{"-m comment --comment " + Comment + " -j RETURN", "xt_comment"},
		{"-m mark --mark 0x1/0x1 -j RETURN", "xt_mark"},
		{"-m conntrack --ctstate NEW -j RETURN", "xt_conntrack"},
	}
	return map[string][]requirement{
		"mangle": append(common[:len(common):len(common)], requirement{"-j MARK --set-xmark 0x0/0x1", "xt_mark"}),
		"filter": append(common[:len(common):len(common)],
			requirement{"-p tcp -j REJECT --reject-with tcp-reset", rejectModule},
			requirement{"-j REJECT --reject-with " + reject, rejectModule},
			requirement{icmp, icmpModule}),
		"nat": append(common[:len(common):len(common)],
			requirement{masquerade, "xt_MASQUERADE"},
			requirement{"-p tcp -j DNAT --to-destination " + loopback, "xt_nat"},
		),
	}
}

// Probe finds out whether the kernel has every table, match and target that
// our rules use, by writing a chain of them that nothing jumps to and deleting
// it. The error names each one that is missing, with its kernel module.
//
// A family in which chains of ours stand already needs no trial, which makes a
// restart quick. What Probe reads serves the next Read as well.
func (t *Table) Probe(ctx context.Context) error {
	if err := t.Read(ctx); err != nil {
		return err
	}
	t.fresh = t.now()
	var errs []error
	for _, f := range t.kernel.families() {
		if !t.proven(f) {
			errs = append(errs, t.probe(ctx, f))
		}
	}
	return errors.Join(errs...)
}

// proven tells whether each table of a family holds chains of ours.
func (t *Table) proven(f state.Family) bool {
	for _, name := range []string{"mangle", "nat", "filter"} {
		if h := t.have[tableID{f, name}]; h == nil || len(h.chains) == 0 {
			return false
		}
	}
	return true
}

// probe tries all requirements at once, and one at a time if that fails.
func (t *Table) probe(ctx context.Context, f state.Family) error {
	needs := requirements(f, t.kernel.randomFully())
	var all strings.Builder
	for _, table := range []string{"mangle", "nat", "filter"} {
		all.WriteString(probeScript(table, needs[table]...))
	}
	err := t.kernel.restore(ctx, f, all.String())
	if err == nil {
		return t.probeSets(ctx, f)
	}
	if errors.Is(err, ErrLocked) || ctx.Err() != nil {
		return fmt.Errorf("trying the %s rules: %w", f, err)
	}
	var errs []error
	for _, table := range []string{"mangle", "nat", "filter"} {
		errs = append(errs, t.probeTable(ctx, f, table, needs[table]))
	}
	errs = append(errs, t.probeSets(ctx, f))
	if one := errors.Join(errs...); one != nil {
		return one
	}
	return fmt.Errorf("trying the %s rules: %w", f, err)
}

// probeTable tries a table and then each of its requirements.
func (t *Table) probeTable(ctx context.Context, f state.Family, table string, needs []requirement) error {
	if err := t.kernel.restore(ctx, f, probeScript(table)); err != nil {
		family := map[state.Family]string{state.IPv4: "iptable_", state.IPv6: "ip6table_"}[f]
		return fmt.Errorf("%s has no table %s: load the kernel module %s%s: %w", command(f), table, family, table, err)
	}
	var errs []error
	for _, n := range needs {
		if err := t.kernel.restore(ctx, f, probeScript(table, n)); err != nil {
			errs = append(errs, fmt.Errorf("%s cannot use %q in table %s: load the kernel module %s: %w",
				command(f), n.rule, table, n.module, err))
		}
	}
	return errors.Join(errs...)
}

// probeSets finds out whether rules may name ipsets. There is no set to name
// yet, so that what tells is the complaint: about the set, or about the kernel.
func (t *Table) probeSets(ctx context.Context, f state.Family) error {
	need := requirement{"-m set --match-set " + probeChain + " src -j RETURN", "xt_set"}
	err := t.kernel.restore(ctx, f, probeScript("filter", need))
	switch {
	case err == nil:
		return nil
	case errors.Is(err, ErrLocked) || ctx.Err() != nil:
		return fmt.Errorf("trying the %s rules: %w", f, err)
	case strings.Contains(err.Error(), "doesn't exist") && !strings.Contains(err.Error(), "missing kernel module"):
		return nil
	}
	return fmt.Errorf("%s cannot match sets: load the kernel modules ip_set and %s: %w", command(f), need.module, err)
}

// probeScript returns the text that makes the chain with rules and deletes it
// again. The two are commits of their own: within one, the kernel would never
// see the rules.
func probeScript(table string, needs ...requirement) string {
	id := tableID{Name: table}
	chain := state.Chain{Name: probeChain}
	for _, n := range needs {
		chain.Rules = append(chain.Rules, n.rule)
	}
	return script(edit{tableID: id, chains: []state.Chain{chain}}) + drops{id, []string{probeChain}}.script()
}
