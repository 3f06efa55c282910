package iptables

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	// Prefix begins the name of every chain of ours.
	Prefix = "KIPVS-"
	// Comment is on every jump of ours from a built-in chain.
	Comment = "kube-ipvs"
)

// tableID identifies a table of one family. It prints as "nat (IPv4)".
type tableID struct {
	Family state.Family
	Name   string
}

func (id tableID) String() string { return fmt.Sprintf("%s (%s)", id.Name, id.Family) }

func (id tableID) compare(o tableID) int {
	return cmp.Or(cmp.Compare(id.Family, o.Family), cmp.Compare(id.Name, o.Name))
}

// chainID identifies a chain.
type chainID struct {
	tableID
	chain string
}

// printing is a chain's rules as they were given to the program, and as the
// program prints them.
type printing struct{ given, printed []string }

// jump is a rule of ours in a built-in chain.
type jump struct {
	state.Jump
	// rule is the rule as iptables-save prints it, without "-A CHAIN ".
	rule string
}

// newJump returns the rule for a jump that is wanted.
func newJump(j state.Jump) jump {
	return jump{j, "-m comment --comment " + Comment + " -j " + j.To}
}

// words returns the rule as arguments of iptables.
func (j jump) words() []string { return words(j.rule) }

// held is what one table holds of ours.
type held struct {
	chains map[string][]string
	jumps  []jump // in the kernel's order, repeats included
}

func (h *held) dropJump(j jump) {
	if i := slices.Index(h.jumps, j); i >= 0 {
		h.jumps = slices.Delete(h.jumps, i, i+1)
	}
}

// belief is what the kernel holds of ours, by table.
type belief map[tableID]*held

// at returns what a table holds, made empty if it is not known.
func (b belief) at(id tableID) *held {
	if b[id] == nil {
		b[id] = &held{chains: map[string][]string{}}
	}
	return b[id]
}

// replace forgets a family and takes what was found instead.
func (b belief) replace(f state.Family, found map[string]*held) {
	maps.DeleteFunc(b, func(id tableID, _ *held) bool { return id.Family == f })
	for name, h := range found {
		b[tableID{f, name}] = h
	}
}

// ids returns the tables in a fixed order.
func (b belief) ids() []tableID { return slices.SortedFunc(maps.Keys(b), tableID.compare) }

// edit is what must be done to one table: the chains to write, which are all
// or none of those wanted, and the jumps that are missing, in the order in
// which they shall stand.
type edit struct {
	tableID
	chains []state.Chain
	jumps  []jump
}

// ops returns the edit's operations in the order in which they are done.
func (e edit) ops() []state.Op {
	var ops []state.Op
	if len(e.chains) > 0 {
		ops = append(ops, body{e.tableID, e.chains})
	}
	for _, j := range slices.Backward(e.jumps) {
		ops = append(ops, insert{e.tableID, j})
	}
	return ops
}

// body is a rewrite of the chains of one table.
type body struct {
	tableID
	chains []state.Chain
}

// String returns the rewrite as "iptables-restore --noflush *nat (5 rules)".
func (b body) String() string {
	n := 0
	for _, c := range b.chains {
		n += len(c.Rules)
	}
	plural := "s"
	if n == 1 {
		plural = ""
	}
	return fmt.Sprintf("%s-restore --noflush *%s (%d rule%s)", command(b.Family), b.Name, n, plural)
}

// insert is a jump put at the head of a built-in chain.
type insert struct {
	tableID
	jump jump
}

// String returns the command, such as
// "iptables -t nat -I PREROUTING 1 -m comment --comment kube-ipvs -j KIPVS-PREROUTING".
func (i insert) String() string {
	return fmt.Sprintf("%s -t %s -I %s 1 %s", command(i.Family), i.Name, i.jump.From, i.jump.rule)
}

// remove is a jump taken out of a built-in chain.
type remove struct {
	tableID
	jump jump
}

// String returns the command, such as
// "iptables -t nat -D PREROUTING -m comment --comment kube-ipvs -j KIPVS-PREROUTING".
func (r remove) String() string {
	return fmt.Sprintf("%s -t %s -D %s %s", command(r.Family), r.Name, r.jump.From, r.jump.rule)
}

// drop is a chain deleted.
type drop struct {
	tableID
	chain string
}

// String returns the command, such as "iptables -t nat -X KIPVS-OLD".
func (d drop) String() string {
	return fmt.Sprintf("%s -t %s -X %s", command(d.Family), d.Name, d.chain)
}

// drops are the chains of one table that are deleted together.
type drops struct {
	tableID
	chains []string
}

// script returns the text for iptables-restore. Naming a chain flushes it, so
// that chains which jump to each other can go in any order. The chains are
// flushed in a commit of its own: one that somebody else's rule jumps to cannot
// be deleted, but is left empty, and so names no set.
func (d drops) script() string {
	var b strings.Builder
	fmt.Fprintf(&b, "*%s\n", d.Name)
	for _, c := range d.chains {
		fmt.Fprintf(&b, ":%s - [0:0]\n", c)
	}
	fmt.Fprintf(&b, "COMMIT\n*%s\n", d.Name)
	for _, c := range d.chains {
		fmt.Fprintf(&b, "-X %s\n", c)
	}
	b.WriteString("COMMIT\n")
	return b.String()
}

// script returns the text for iptables-restore --noflush. Chains come before
// rules, since rules may jump to any of them, and jumps come last.
func script(edits ...edit) string {
	var b strings.Builder
	for _, e := range edits {
		fmt.Fprintf(&b, "*%s\n", e.Name)
		for _, c := range e.chains {
			fmt.Fprintf(&b, ":%s - [0:0]\n", c.Name)
		}
		for _, c := range e.chains {
			for _, r := range c.Rules {
				fmt.Fprintf(&b, "-A %s %s\n", c.Name, r)
			}
		}
		for _, j := range slices.Backward(e.jumps) {
			fmt.Fprintf(&b, "-I %s 1 %s\n", j.From, j.rule)
		}
		b.WriteString("COMMIT\n")
	}
	return b.String()
}

// tables names the tables of edits, for errors.
func tables(edits []edit) string {
	var names []string
	for _, e := range edits {
		names = append(names, e.tableID.String())
	}
	return strings.Join(names, ", ")
}

// command returns the name of a family's program.
func command(f state.Family) string {
	if f == state.IPv6 {
		return "ip6tables"
	}
	return "iptables"
}

// split parts the wanted tables into those of the families that are there and
// the families that are not there but wanted.
func split(want []state.Table, there []state.Family) (missing []state.Family, wanted []state.Table) {
	for _, w := range want {
		switch {
		case slices.Contains(there, w.Family):
			wanted = append(wanted, w)
		case len(w.Chains)+len(w.Jumps) > 0 && !slices.Contains(missing, w.Family):
			missing = append(missing, w.Family)
		}
	}
	return missing, wanted
}

// planEdits returns what must be done to the tables of a family. All chains of
// a table are written if one of them differs.
func planEdits(f state.Family, want []state.Table, have belief, printed map[chainID]printing) []edit {
	var edits []edit
	for _, w := range want {
		if w.Family != f {
			continue
		}
		e := edit{tableID: tableID{f, w.Name}}
		if slices.ContainsFunc(w.Chains, func(c state.Chain) bool { return differs(e.tableID, c, have, printed) }) {
			e.chains = w.Chains
		}
		e.jumps = missingJumps(w, have[e.tableID])
		if len(e.chains)+len(e.jumps) > 0 {
			edits = append(edits, e)
		}
	}
	return edits
}

// missingJumps returns the jumps that a table lacks.
func missingJumps(want state.Table, have *held) []jump {
	var missing []jump
	for _, j := range want.Jumps {
		if have == nil || !slices.Contains(have.jumps, newJump(j)) {
			missing = append(missing, newJump(j))
		}
	}
	return missing
}

// differs reports whether a chain is missing or holds other rules.
func differs(id tableID, want state.Chain, have belief, printed map[chainID]printing) bool {
	h, ok := have[id]
	if !ok {
		return true
	}
	got, ok := h.chains[want.Name]
	if !ok {
		return true
	}
	if slices.Equal(got, want.Rules) {
		return false
	}
	p, ok := printed[chainID{id, want.Name}]
	return !ok || !slices.Equal(p.given, want.Rules) || !slices.Equal(p.printed, got)
}

// planDeletes returns the jumps of ours that are not wanted, or wanted once
// but there more than once.
func planDeletes(want []state.Table, have belief) []remove {
	wanted := map[tableID]map[jump]bool{}
	for _, w := range want {
		jumps := map[jump]bool{}
		for _, j := range w.Jumps {
			jumps[newJump(j)] = true
		}
		wanted[tableID{w.Family, w.Name}] = jumps
	}
	var removes []remove
	for _, id := range have.ids() {
		seen := map[jump]bool{}
		for _, j := range have[id].jumps {
			if !wanted[id][j] || seen[j] {
				removes = append(removes, remove{id, j})
			}
			seen[j] = true
		}
	}
	return removes
}

// planDrops returns the chains of ours that are not wanted.
func planDrops(want []state.Table, have belief) []drops {
	wanted := map[chainID]bool{}
	for _, w := range want {
		for _, c := range w.Chains {
			wanted[chainID{tableID{w.Family, w.Name}, c.Name}] = true
		}
	}
	var all []drops
	for _, id := range have.ids() {
		d := drops{tableID: id}
		for _, name := range slices.Sorted(maps.Keys(have[id].chains)) {
			if !wanted[chainID{id, name}] {
				d.chains = append(d.chains, name)
			}
		}
		if len(d.chains) > 0 {
			all = append(all, d)
		}
	}
	return all
}
