package desired

import (
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// rules returns the iptables rules of every family. They depend on options and
// on the node, never on Services.
//
// A call to a Service meets them in this order. One that comes in from
// outside or from a pod: mangle PREROUTING, nat PREROUTING, filter INPUT, then
// IPVS, which sends the rewritten packet through OUTPUT and POSTROUTING. One
// of the node itself: mangle OUTPUT, nat OUTPUT, then IPVS (before filter
// OUTPUT), which sends it through OUTPUT again and POSTROUTING.
func rules(o *Options, self *state.Self) []state.Table {
	var tables []state.Table
	for _, f := range o.Families {
		r := ruleset{Options: o, family: f, pods: len(o.Detector.cidrs(f, self)) > 0}
		tables = append(tables, r.mangle(), r.nat(), r.filter())
	}
	return tables
}

type ruleset struct {
	*Options
	family state.Family
	pods   bool // the set of pods' addresses is not empty by configuration
}

// is matches packets whose part ("dst,dst", "src" and so on) is in a set.
func (r ruleset) is(s set, part string) string {
	return fmt.Sprintf("-m set --match-set %s %s", s.in(r.family), part)
}

func (r ruleset) isNot(s set, part string) string {
	return fmt.Sprintf("-m set ! --match-set %s %s", s.in(r.family), part)
}

// local matches packets of local pods; ok is false where nothing tells them.
func (r ruleset) local() (yes, no string, ok bool) {
	if i := r.Detector.Interface; i != "" {
		return "-i " + i, "! -i " + i, true
	}
	return r.is(setPod, "src"), r.isNot(setPod, "src"), r.pods
}

func (r ruleset) either(v4, v6 string) string {
	if r.family == state.IPv6 {
		return v6
	}
	return v4
}

const (
	isNew = "-m conntrack --ctstate NEW"
)

// marked matches packets that take a way past policy Local, unmarked those that
// do not.
func marked() string   { return fmt.Sprintf("-m mark --mark %#x/%#x", markBlock, uint32(markMask)) }
func unmarked() string { return fmt.Sprintf("-m mark ! --mark %#x/%#x", markBlock, uint32(markMask)) }

// mangle leads callers of the cluster past policy Local by a mark that names a
// virtual server of its own. The mark must be gone before the packet leaves,
// or a tunnel's outer packet would inherit it and meet that virtual server. On
// a call of the node itself the mark that asks for source NAT takes its place.
// The node's own calls meet no INPUT before IPVS, so what must not reach it is
// dropped here.
func (r ruleset) mangle() state.Table {
	shortcut := rule(r.is(setShortcut, "dst,dst"), fmt.Sprintf("-j SET --map-set %s dst,dst --map-mark", setShortcut.in(r.family)))
	var pre []string
	if yes, _, ok := r.local(); ok {
		pre = append(pre, rule(yes, shortcut))
	}
	return state.Table{
		Family: r.family, Name: "mangle",
		Chains: []state.Chain{
			{Name: "KIPVS-PREROUTING", Rules: pre},
			{Name: "KIPVS-OUTPUT", Rules: append([]string{shortcut}, r.barred()...)},
			{Name: "KIPVS-POSTROUTING", Rules: []string{
				fmt.Sprintf("%s -m addrtype --src-type LOCAL -j MARK --set-xmark %#x/0xffffffff", marked(), 1<<r.MasqueradeBit),
				marked() + " -j MARK --set-xmark 0x0/0xffffffff",
			}},
		},
		Jumps: []state.Jump{
			{From: "PREROUTING", To: "KIPVS-PREROUTING"},
			{From: "OUTPUT", To: "KIPVS-OUTPUT"},
			{From: "POSTROUTING", To: "KIPVS-POSTROUTING"},
		},
	}
}

// barred drops new calls that policy Local or source ranges keep out.
func (r ruleset) barred() []string {
	return []string{
		rule(r.is(setDrop, "dst,dst"), unmarked(), isNew, "-j DROP"),
		rule(r.is(setRanged, "dst,dst"), r.isNot(setRange, "dst,dst,src"), isNew, "-j DROP"),
	}
}

// nat decides on source NAT and keeps others' destination NAT off Service
// addresses, which are local to the node and so would match rules for host
// ports. In OUTPUT a refused call of the node is turned to a port where the
// filter resets it: IPVS stands before filter OUTPUT and would answer with an
// ICMP error, which TCP ignores while the socket is in connect.
func (r ruleset) nat() state.Table {
	masquerade := fmt.Sprintf("-j MARK --set-xmark %#x/%#x", 1<<r.MasqueradeBit, 1<<r.MasqueradeBit)
	served := rule(r.is(setService, "dst,dst"), "-j ACCEPT")
	pre := []string{rule(r.is(setExternal, "dst,dst"), masquerade), served}
	if m, ok := r.cluster(); ok {
		pre = append([]string{rule(m, masquerade)}, pre...)
	}
	refused := r.is(setRefuse, "dst,dst") + " -j DNAT --to-destination " + r.either("127.0.0.1:9", "[::1]:9")
	return state.Table{
		Family: r.family, Name: "nat",
		Chains: []state.Chain{
			{Name: "KIPVS-PREROUTING", Rules: pre},
			{Name: "KIPVS-OUTPUT", Rules: []string{
				"-p tcp " + refused, "-p sctp " + refused,
				rule(r.is(setCluster, "dst,dst"), masquerade), rule(r.is(setExternal, "dst,dst"), masquerade), served,
			}},
			{Name: "KIPVS-POSTROUTING", Rules: r.postrouting()},
		},
		Jumps: []state.Jump{
			{From: "PREROUTING", To: "KIPVS-PREROUTING"},
			{From: "OUTPUT", To: "KIPVS-OUTPUT"},
			{From: "POSTROUTING", To: "KIPVS-POSTROUTING"},
		},
	}
}

// cluster matches calls to cluster IPs that need source NAT: all of them if
// asked, else those that come from no local pod.
func (r ruleset) cluster() (string, bool) {
	if r.MasqueradeAll {
		return r.is(setCluster, "dst,dst"), true
	}
	_, no, ok := r.local()
	return rule(no, r.is(setCluster, "dst,dst")), ok
}

// postrouting gives a new source to a pod's call that ended at itself, to
// whatever would leave with a Service's address as its source (the kernel takes
// that for the node's own calls, since it is local) and to what was marked for
// it, such as every call of the node. The mark is cleared, so that a tunnel does not do the
// same again to its outer packet.
func (r ruleset) postrouting() []string {
	bit := fmt.Sprintf("%#x", 1<<r.MasqueradeBit)
	masquerade := "-j MASQUERADE"
	if r.RandomFully {
		masquerade += " --random-fully"
	}
	return []string{
		rule(r.is(setHairpin, "dst,dst,src"), masquerade),
		rule(r.is(setAddress, "src"), masquerade),
		fmt.Sprintf("-m mark ! --mark %s/%s -j RETURN", bit, bit),
		fmt.Sprintf("-j MARK --set-xmark %s/0x0", bit),
		masquerade,
	}
}

// filter refuses what nobody serves, drops what is kept out, lets Service
// traffic past the host's own INPUT and FORWARD policies and closes every
// other port of a Service address, behind which the host's processes listen.
func (r ruleset) filter() state.Table {
	unreachable := "-j REJECT --reject-with " + r.either("icmp-port-unreachable", "icmp6-port-unreachable")
	const reset = "-j REJECT --reject-with tcp-reset"
	refuse := rule(r.is(setRefuse, "dst,dst"), isNew)
	input := []string{rule("-p tcp", refuse, reset), rule(refuse, unreachable)}
	input = append(input, r.barred()...)
	input = append(input, rule(r.is(setService, "dst,dst"), "-j ACCEPT"), rule(r.is(setHealth, "dst,dst"), "-j ACCEPT"))
	guarded := r.is(setAddress, "dst")
	if r.AnswerPing {
		input = append(input, rule(r.either("-p icmp -m icmp --icmp-type 8", "-p ipv6-icmp -m icmp6 --icmpv6-type 128"), guarded, "-j ACCEPT"))
	}
	input = append(input, rule("-p tcp", guarded, isNew, reset), rule(guarded, isNew, unreachable))
	return state.Table{
		Family: r.family, Name: "filter",
		Chains: []state.Chain{
			{Name: "KIPVS-INPUT", Rules: input},
			{Name: "KIPVS-FORWARD", Rules: []string{"-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT"}},
			{Name: "KIPVS-OUTPUT", Rules: []string{
				rule(r.either("-d 127.0.0.1/32", "-d ::1/128"), "-p tcp -m tcp --dport 9 -m conntrack --ctstate DNAT", reset),
			}},
		},
		Jumps: []state.Jump{
			{From: "INPUT", To: "KIPVS-INPUT"},
			{From: "FORWARD", To: "KIPVS-FORWARD"},
			{From: "OUTPUT", To: "KIPVS-OUTPUT"},
		},
	}
}

// rule joins the parts of a rule.
func rule(parts ...string) string { return strings.Join(parts, " ") }
