package vip

import (
	"iter"
	"maps"
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// binding is an address as a device holds it.
type binding struct {
	netip.Prefix
	// Host is IPv4's scope host.
	Host bool
	// Deprecated is IPv6's mark for an address that is never chosen as a
	// source: a preferred lifetime of 0 (RFC 4862, section 5.5.4).
	Deprecated bool
}

// bindingOf returns how an address of ours is bound, so that neither source
// selection nor masquerading ever chooses it.
func bindingOf(a netip.Addr) binding {
	return binding{
		Prefix:     netip.PrefixFrom(a, a.BitLen()),
		Host:       a.Is4(),
		Deprecated: !a.Is4(),
	}
}

// serves reports whether an existing binding can stay. An IPv4 address of
// another scope can, for its scope cannot be edited and to delete it would cut
// connections; an IPv6 address must be deprecated.
func (b binding) serves() bool { return b.Addr().Is4() || b.Deprecated }

// String returns the binding as the arguments of "ip addr add", without the
// device.
func (b binding) String() string { return b.Prefix.String() }

// options are what "ip addr add" takes behind the device.
func (b binding) options() string {
	switch {
	case b.Host:
		return " scope host"
	case b.Deprecated:
		return " preferred_lft 0 nodad noprefixroute"
	}
	return ""
}

// verb is what an operation does, as the ip command calls it.
type verb string

const (
	verbCreate  verb = "link add"
	verbRemove  verb = "link del"
	verbAdd     verb = "addr add"
	verbReplace verb = "addr replace"
	verbDel     verb = "addr del"
)

// op is one operation on the device or on an address of it.
type op struct {
	verb    verb
	device  string
	binding binding
}

// String returns the operation as the command that an operator would type.
func (o op) String() string {
	text := "ip " + string(o.verb) + " "
	switch o.verb {
	case verbCreate:
		return text + o.device + " type dummy"
	case verbRemove:
		return text + o.device
	case verbDel:
		return text + o.binding.String() + " dev " + o.device
	}
	return text + o.binding.String() + " dev " + o.device + o.binding.options()
}

// planEnsure returns what binds the wanted addresses that are missing and
// edits those that do not serve.
func planEnsure(device string, want *state.Node, have map[netip.Addr]binding, change *state.Change) []op {
	var ops []op
	for a := range named(change, want.Addresses) {
		if _, wanted := want.Addresses[a]; !wanted || change.FailedAddress(a, want) {
			continue
		}
		switch b, there := have[a]; {
		case !there:
			ops = append(ops, op{verbAdd, device, bindingOf(a)})
		case !b.serves():
			ops = append(ops, op{verbReplace, device, binding{Prefix: b.Prefix, Deprecated: true}})
		}
	}
	return sorted(ops)
}

// planPrune returns what unbinds the addresses that are not wanted.
func planPrune(device string, want *state.Node, have map[netip.Addr]binding, change *state.Change) []op {
	var ops []op
	for a := range named(change, have) {
		b, there := have[a]
		if _, wanted := want.Addresses[a]; wanted || !there || change.FailedAddress(a, want) {
			continue
		}
		ops = append(ops, op{verbDel, device, b})
	}
	return sorted(ops)
}

// named returns the addresses to look at: those that the change names, or all.
func named[V any](change *state.Change, all map[netip.Addr]V) iter.Seq[netip.Addr] {
	if change.All {
		return maps.Keys(all)
	}
	return maps.Keys(change.Addresses)
}

func sorted(ops []op) []op {
	slices.SortFunc(ops, func(a, b op) int { return a.binding.Addr().Compare(b.binding.Addr()) })
	return ops
}

// ours reports whether an address of the device is the project's business. The
// kernel puts a link-local IPv6 address on a device that is set up.
func ours(a netip.Addr) bool { return !(a.Is6() && a.IsLinkLocalUnicast()) }
