package ipset

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// A set is ours if its name begins with one of these.
const (
	Prefix4 = "KIPVS-"
	Prefix6 = "KIPVS6-"
)

// maxElements is the capacity of the sets that we create. It costs nothing
// until it is used.
const maxElements = 1 << 20

// maxName is the longest name of a set (IPSET_MAXNAMELEN without the NUL).
const maxName = 31

// Ours reports whether a set of this name belongs to the project.
func Ours(name string) bool {
	return strings.HasPrefix(name, Prefix4) || strings.HasPrefix(name, Prefix6)
}

// spec is what a set is created with and cannot change afterwards.
type spec struct {
	Type   state.SetType
	Family state.Family
	Marks  bool
	Max    uint32
	// Odd says that the set has an option that ours never have, such as a
	// time-out. It only occurs in what the kernel reports.
	Odd bool
}

// specOf returns the spec with which a wanted set is created.
func specOf(s *state.Set) spec {
	return spec{Type: s.Type, Family: s.Family, Marks: s.Marks, Max: maxElements}
}

// serves reports whether an existing set can hold what a set of spec want can.
func (s spec) serves(want spec) bool {
	return s.Type == want.Type && s.Family == want.Family && !s.Odd &&
		(s.Marks || !want.Marks) && s.Max >= want.Max
}

// String returns the spec as the arguments of "ipset create".
func (s spec) String() string {
	family := "inet"
	if s.Family == state.IPv6 {
		family = "inet6"
	}
	text := fmt.Sprintf("%s family %s maxelem %d", s.Type, family, s.Max)
	if s.Marks {
		text += " skbinfo"
	}
	return text
}

// held is a set as we believe the kernel to hold it.
type held struct {
	spec
	entries map[state.Entry]uint32
}

// member is an entry with its mark.
type member struct {
	entry state.Entry
	mark  uint32
}

// String returns the member as "ipset save" prints it.
func (m member) String() string {
	if m.mark == 0 {
		return m.entry.String()
	}
	return fmt.Sprintf("%s skbmark %#x", m.entry, m.mark)
}

// verb is what an operation does, as the ipset command calls it.
type verb string

const (
	verbCreate  verb = "create"
	verbAdd     verb = "add"
	verbDel     verb = "del"
	verbSwap    verb = "swap"
	verbDestroy verb = "destroy"
)

// op is one operation. Which fields beyond the first two count depends on the
// verb.
type op struct {
	verb verb
	set  string
	spec spec   // create
	with string // swap
	member
}

// String returns the operation as the arguments of the ipset command.
func (o op) String() string {
	text := string(o.verb) + " " + o.set
	switch o.verb {
	case verbCreate:
		return text + " " + o.spec.String()
	case verbAdd, verbDel:
		return text + " " + o.member.String()
	case verbSwap:
		return text + " " + o.with
	}
	return text
}

// planEnsure returns what creates the wanted sets and entries that are missing
// and replaces the sets that cannot serve.
func planEnsure(want *state.Node, have map[string]*held, change *state.Change) []op {
	var ops []op
	for _, name := range want.SetOrder {
		set := want.Sets[name]
		if set == nil || !Ours(name) || !concerns(change, name) {
			continue
		}
		switch h := have[name]; {
		case h == nil:
			ops = append(ops, fill(name, set, change)...)
		case h.serves(specOf(set)):
			ops = append(ops, missing(name, set, h, change)...)
		default:
			ops = append(ops, replace(name, set, have, change)...)
		}
	}
	return ops
}

// concerns reports whether the change names anything of the set.
func concerns(change *state.Change, set string) bool {
	return change.All || len(change.Entries[set]) > 0
}

// fill creates a set with all its entries.
func fill(name string, set *state.Set, change *state.Change) []op {
	ops := []op{{verb: verbCreate, set: name, spec: specOf(set)}}
	return append(ops, missing(name, set, &held{}, &state.Change{All: true, Failed: change.Failed})...)
}

// missing adds the entries that the set lacks or holds with another mark.
func missing(name string, set *state.Set, have *held, change *state.Change) []op {
	var ops []op
	for e := range named(change, name, set.Entries) {
		mark, wanted := set.Entries[e]
		if !set.Marks {
			mark = 0
		}
		if m, there := have.entries[e]; !wanted || there && m == mark || change.FailedEntry(e) {
			continue
		}
		ops = append(ops, op{verb: verbAdd, set: name, member: member{e, mark}})
	}
	return sorted(ops)
}

// named returns the entries of a set to look at: those that the change names,
// or all.
func named(change *state.Change, set string, all map[state.Entry]uint32) iter.Seq[state.Entry] {
	if change.All {
		return maps.Keys(all)
	}
	return maps.Keys(change.Entries[set])
}

// replace puts a set that serves in the place of one that does not. Sets that
// differ in options alone are swapped, so that rules which name the set go on
// matching; the kernel swaps no sets of different types (ip_set_swap in
// net/netfilter/ipset/ip_set_core.c).
func replace(name string, set *state.Set, have map[string]*held, change *state.Change) []op {
	if old := have[name]; old.Type != set.Type || old.Family != set.Family {
		return append([]op{{verb: verbDestroy, set: name}}, fill(name, set, change)...)
	}
	var ops []op
	next := nextName(set.Family)
	if have[next] != nil {
		ops = append(ops, op{verb: verbDestroy, set: next})
	}
	ops = append(ops, fill(next, set, change)...)
	return append(ops,
		op{verb: verbSwap, set: next, with: name},
		op{verb: verbDestroy, set: next})
}

// nextName is the name of a set while it is being filled. A crash leaves it
// behind as one of ours that nobody wants.
func nextName(f state.Family) string {
	if f == state.IPv6 {
		return Prefix6 + "NEXT"
	}
	return Prefix4 + "NEXT"
}

// planPrune returns what removes the entries and, where the change says All,
// the sets that are not wanted. A set that does not serve is left alone.
func planPrune(want *state.Node, have map[string]*held, change *state.Change) []op {
	var ops []op
	for _, name := range slices.Backward(want.SetOrder) {
		set, h := want.Sets[name], have[name]
		if set == nil || h == nil || !concerns(change, name) || !h.serves(specOf(set)) {
			continue
		}
		ops = append(ops, surplus(name, set.Entries, h, change)...)
	}
	for _, name := range slices.Sorted(maps.Keys(have)) {
		switch {
		case want.Sets[name] != nil:
		case change.All:
			ops = append(ops, op{verb: verbDestroy, set: name})
		default:
			ops = append(ops, surplus(name, nil, have[name], change)...)
		}
	}
	return ops
}

// surplus deletes the entries that are not wanted.
func surplus(name string, want map[state.Entry]uint32, have *held, change *state.Change) []op {
	var ops []op
	for e := range named(change, name, have.entries) {
		_, wanted := want[e]
		if _, there := have.entries[e]; wanted || !there || change.FailedEntry(e) {
			continue
		}
		ops = append(ops, op{verb: verbDel, set: name, member: member{entry: e}})
	}
	return sorted(ops)
}

func sorted(ops []op) []op {
	slices.SortFunc(ops, func(a, b op) int { return compare(a.entry, b.entry) })
	return ops
}

// compare orders entries by address, port, protocol and third part.
func compare(a, b state.Entry) int {
	return cmp.Or(a.Addr.Compare(b.Addr), cmp.Compare(a.Port, b.Port), cmp.Compare(a.Protocol, b.Protocol),
		a.Net.Addr().Compare(b.Net.Addr()), cmp.Compare(a.Net.Bits(), b.Net.Bits()))
}
