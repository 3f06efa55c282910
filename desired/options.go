// Package desired holds every rule about Services as pure functions: what
// does this Service do to this node? Its answer is a value (state.Node) that
// can be printed, compared and tested. It never reads a clock, a file or the
// kernel.
package desired

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Options are the settings that decide what a Service means on this node.
type Options struct {
	// Families are the address families that this node can serve.
	Families []state.Family
	// Scheduler is used for every Service without an annotation of its own.
	Scheduler Scheduler
	// MasqueradeBit is the bit of the packet mark that asks for source NAT.
	MasqueradeBit uint
	// MasqueradeAll asks for source NAT of everything sent to a ClusterIP.
	MasqueradeAll bool
	// RandomFully adds --random-fully to the masquerade rules.
	RandomFully bool
	Detector    Detector
	// NodePorts says on which of the node's addresses NodePorts are served.
	NodePorts NodePortAddresses
	// IgnoreExternalIPs takes spec.externalIPs for empty (feature gate
	// AllowServiceExternalIPs off).
	IgnoreExternalIPs bool
	// Missing are schedulers that the kernel turned out not to have.
	Missing map[string]bool
	// AnswerPing lets the node answer echo requests to Service addresses.
	AnswerPing bool
}

// Detector tells local pods from everybody else by a packet's source. The
// zero value knows no local pod.
type Detector struct {
	// CIDRs hold the pods' addresses. A family without one has no detector.
	CIDRs []netip.Prefix
	// NodeCIDRs takes the pod CIDRs of this node's Node object in place of
	// CIDRs.
	NodeCIDRs bool
	// Interface is the name of the device that pods' packets come in by; a
	// trailing + stands for any rest.
	Interface string
}

// cidrs returns the prefixes of pods in one family.
func (d Detector) cidrs(f state.Family, self *state.Self) []netip.Prefix {
	all := d.CIDRs
	if d.NodeCIDRs {
		all = self.PodCIDRs
	}
	var of []netip.Prefix
	for _, p := range all {
		if state.FamilyOf(p.Addr()) == f {
			of = append(of, p)
		}
	}
	return of
}

// NodePortAddresses selects addresses of the node. The zero value selects all.
type NodePortAddresses struct {
	CIDRs []netip.Prefix
	// Primary selects the addresses of the Node object.
	Primary bool
	// Localhost was asked for. IPVS cannot serve NodePorts there, so by itself
	// it selects nothing.
	Localhost bool
	// All selects every address in both families, whatever else is given.
	All bool
}

// of returns the selected addresses of one family. A family for which nothing
// is selected by CIDR serves all of its addresses, unless a keyword is given.
func (n NodePortAddresses) of(f state.Family, self *state.Self) []netip.Addr {
	cidrs := slices.DeleteFunc(slices.Clone(n.CIDRs), func(p netip.Prefix) bool {
		return state.FamilyOf(p.Addr()) != f
	})
	all := n.All || (len(cidrs) == 0 && !n.Primary && !n.Localhost)
	var addrs []netip.Addr
	for _, a := range self.Addresses {
		if state.FamilyOf(a) != f {
			continue
		}
		listed := slices.ContainsFunc(cidrs, func(p netip.Prefix) bool { return p.Contains(a) })
		if all || listed || (n.Primary && slices.Contains(self.NodeIPs, a)) {
			addrs = append(addrs, a)
		}
	}
	return addrs
}
