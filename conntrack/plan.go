package conntrack

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Flow is an entry of the kernel's table, as far as it matters here.
type Flow struct {
	Protocol state.Protocol
	// Source and Destination are of the original direction's packets.
	Source, Destination netip.AddrPort
	// ReplySource is where replies come from: the real server, or the
	// destination itself if the flow is not translated.
	ReplySource netip.AddrPort
	// Zone is the original direction's zone, and ZoneOfTuple says that it is
	// that direction's alone.
	Zone        uint16
	ZoneOfTuple bool
	// ID is the kernel's number for the entry, 0 if it has told none.
	ID uint32
}

// String returns the entry as conntrack's option -D takes it, such as
// "-p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --orig-src 10.244.1.9
// --orig-port-src 4000 --reply-src 10.244.1.11 --reply-port-src 53" (on one
// line).
func (f Flow) String() string {
	var b strings.Builder
	if state.FamilyOf(f.Destination.Addr()) == state.IPv6 {
		b.WriteString("-f ipv6 ")
	}
	fmt.Fprintf(&b, "-p %s --orig-dst %s --orig-port-dst %d --orig-src %s --orig-port-src %d --reply-src %s --reply-port-src %d",
		f.Protocol, f.Destination.Addr(), f.Destination.Port(), f.Source.Addr(), f.Source.Port(),
		f.ReplySource.Addr(), f.ReplySource.Port())
	switch {
	case f.ZoneOfTuple:
		fmt.Fprintf(&b, " --orig-zone %d", f.Zone)
	case f.Zone != 0:
		fmt.Fprintf(&b, " -w %d", f.Zone)
	}
	return b.String()
}

func (f Flow) compare(o Flow) int {
	return cmp.Or(f.Destination.Compare(o.Destination), f.Source.Compare(o.Source), cmp.Compare(f.Protocol, o.Protocol),
		cmp.Compare(f.Zone, o.Zone), cmp.Compare(f.ID, o.ID))
}

// remove is an entry deleted.
type remove struct{ flow Flow }

// String returns the command, "conntrack -D -p udp …".
func (r remove) String() string { return "conntrack -D " + r.flow.String() }

// targets are virtual servers to look at, each with the real servers whose
// entries are good.
type targets map[state.ServerKey]map[netip.AddrPort]struct{}

// planTargets returns the UDP virtual servers to look at. One that the change
// names counts even beside All: it may just have been removed.
func planTargets(want *state.Node, change *state.Change) targets {
	t := targets{}
	if change.All {
		for key, good := range want.Flows {
			t.add(key, good)
		}
	}
	for key := range change.Servers {
		t.add(key, want.Flows[key])
	}
	return t
}

func (t targets) add(key state.ServerKey, good map[netip.AddrPort]struct{}) {
	if key.Protocol == state.UDP && key.Mark == 0 {
		t[key] = good
	}
}

// of returns the targets of one family.
func (t targets) of(f state.Family) targets {
	some := targets{}
	for key, good := range t {
		if key.Family() == f {
			some[key] = good
		}
	}
	return some
}

// stale reports whether an entry is a target's and leads to no real server
// that is good.
func (t targets) stale(f Flow) bool {
	good, ok := t[state.ServerKey{Addr: f.Destination.Addr(), Protocol: f.Protocol, Port: f.Destination.Port()}]
	if !ok {
		return false
	}
	_, ok = good[f.ReplySource]
	return !ok
}

// filter asks the kernel for less than everything. It is a hint: kernels older
// than 5.8 take no notice of it.
type filter struct {
	protocol state.Protocol
	// destination is the only one of interest, or not valid if there are more.
	destination netip.AddrPort
}

func (t targets) filter() filter {
	f := filter{protocol: state.UDP}
	if len(t) != 1 {
		return f
	}
	for key := range t {
		f.destination = netip.AddrPortFrom(key.Addr, key.Port)
	}
	return f
}
