package desired

import (
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// ruleOptions have a detector for IPv4 alone.
func ruleOptions() *Options {
	return &Options{
		Families: []state.Family{state.IPv4, state.IPv6}, MasqueradeBit: 14, AnswerPing: true, RandomFully: true,
		Detector: Detector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}},
	}
}

// chain returns the rules of one of our chains.
func chain(t *testing.T, o *Options, f state.Family, table, name string) []string {
	t.Helper()
	for _, tab := range rules(o, &state.Self{Node: "node1"}) {
		if tab.Family != f || tab.Name != table {
			continue
		}
		for _, c := range tab.Chains {
			if c.Name == name {
				return c.Rules
			}
		}
	}
	t.Fatalf("no chain %s in table %s", name, table)
	return nil
}

// inOrder holds that the rules are there, in this order.
func inOrder(t *testing.T, have []string, want ...string) {
	t.Helper()
	from := 0
	for _, rule := range want {
		i := slices.Index(have[from:], rule)
		if i < 0 {
			t.Errorf("no rule %q after the first %d of\n%s", rule, from, strings.Join(have, "\n"))
			return
		}
		from += i + 1
	}
}

func TestS40S41RefusedAtOnce(t *testing.T) {
	const isNew = " -m conntrack --ctstate NEW "
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "filter", "KIPVS-INPUT"),
		"-p tcp -m set --match-set KIPVS-REFUSE dst,dst"+isNew+"-j REJECT --reject-with tcp-reset",
		"-m set --match-set KIPVS-REFUSE dst,dst"+isNew+"-j REJECT --reject-with icmp-port-unreachable",
		"-m set --match-set KIPVS-SERVICE dst,dst -j ACCEPT",
		// S41: every port of a Service address that no Service has.
		"-p tcp -m set --match-set KIPVS-ADDRESS dst"+isNew+"-j REJECT --reject-with tcp-reset",
		"-m set --match-set KIPVS-ADDRESS dst"+isNew+"-j REJECT --reject-with icmp-port-unreachable")
	inOrder(t, chain(t, ruleOptions(), state.IPv6, "filter", "KIPVS-INPUT"),
		"-m set --match-set KIPVS6-REFUSE dst,dst"+isNew+"-j REJECT --reject-with icmp6-port-unreachable",
		"-m set --match-set KIPVS6-ADDRESS dst"+isNew+"-j REJECT --reject-with icmp6-port-unreachable")
	t.Log("the node's own calls meet no INPUT before IPVS: TCP and SCTP go where the filter resets them")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "nat", "KIPVS-OUTPUT"),
		"-p tcp -m set --match-set KIPVS-REFUSE dst,dst -j DNAT --to-destination 127.0.0.1:9",
		"-p sctp -m set --match-set KIPVS-REFUSE dst,dst -j DNAT --to-destination 127.0.0.1:9",
		"-m set --match-set KIPVS-SERVICE dst,dst -j ACCEPT")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "filter", "KIPVS-OUTPUT"),
		"-d 127.0.0.1/32 -p tcp -m tcp --dport 9 -m conntrack --ctstate DNAT -j REJECT --reject-with tcp-reset")
}

// TestBarred holds that policy Local and source ranges drop, in new connections
// only, before anything is let in, whether a call comes in or is the node's own.
func TestBarred(t *testing.T) {
	const (
		local  = "-m set --match-set KIPVS-DROP dst,dst -m mark ! --mark 0x4b000000/0xff000000 -m conntrack --ctstate NEW -j DROP"         // S32, S38
		ranges = "-m set --match-set KIPVS-RANGED dst,dst -m set ! --match-set KIPVS-RANGE dst,dst,src -m conntrack --ctstate NEW -j DROP" // S56, S58: whatever the mark
	)
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "filter", "KIPVS-INPUT"), local, ranges, "-m set --match-set KIPVS-SERVICE dst,dst -j ACCEPT")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "mangle", "KIPVS-OUTPUT"), local, ranges)
}

func TestShortCut(t *testing.T) {
	const mark = "-m set --match-set KIPVS-SHORTCUT dst,dst -j SET --map-set KIPVS-SHORTCUT dst,dst --map-mark"
	t.Log("S36: local pods, told by the detector")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "mangle", "KIPVS-PREROUTING"), "-m set --match-set KIPVS-POD src "+mark)
	t.Log("S37: the node itself, before what bars others")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "mangle", "KIPVS-OUTPUT"), mark,
		"-m set --match-set KIPVS-DROP dst,dst -m mark ! --mark 0x4b000000/0xff000000 -m conntrack --ctstate NEW -j DROP")
	t.Log("S84: without a detector, as in IPv6 here, no pod is local, the node is")
	if r := chain(t, ruleOptions(), state.IPv6, "mangle", "KIPVS-PREROUTING"); len(r) != 0 {
		t.Errorf("rules %q", r)
	}
	inOrder(t, chain(t, ruleOptions(), state.IPv6, "mangle", "KIPVS-OUTPUT"), strings.ReplaceAll(mark, "KIPVS-", "KIPVS6-"))
	t.Log("the mark leaves with no packet")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "mangle", "KIPVS-POSTROUTING"),
		"-m mark --mark 0x4b000000/0xff000000 -j MARK --set-xmark 0x0/0xffffffff")
}

func TestWhoIsMasqueraded(t *testing.T) {
	const mark = "-j MARK --set-xmark 0x4000/0x4000"
	outside := "-m set ! --match-set KIPVS-POD src -m set --match-set KIPVS-CLUSTER dst,dst " + mark
	external := "-m set --match-set KIPVS-EXTERNAL dst,dst " + mark
	all := "-m set --match-set KIPVS-CLUSTER dst,dst " + mark
	pre := func(o *Options, f state.Family) []string { return chain(t, o, f, "nat", "KIPVS-PREROUTING") }

	t.Log("S74, S76: to a cluster IP who is no local pod; S77: to an external address with policy Cluster everybody")
	got := pre(ruleOptions(), state.IPv4)
	inOrder(t, got, outside, external)
	if slices.Contains(got, all) {
		t.Error("S74: a local pod's call to a cluster IP is masqueraded")
	}
	t.Log("S76: nobody to a cluster IP where no detector is configured")
	for _, r := range pre(ruleOptions(), state.IPv6) {
		if strings.Contains(r, "KIPVS6-CLUSTER") {
			t.Errorf("rule %q", r)
		}
	}
	t.Log("S75: everybody, with or without a detector")
	o := ruleOptions()
	o.MasqueradeAll = true
	inOrder(t, pre(o, state.IPv4), all, external)
	inOrder(t, pre(o, state.IPv6), strings.ReplaceAll(all, "KIPVS-", "KIPVS6-"))
	t.Log("S83: by the device of local pods")
	o = ruleOptions()
	o.Detector = Detector{Interface: "veth+"}
	inOrder(t, pre(o, state.IPv6), "! -i veth+ -m set --match-set KIPVS6-CLUSTER dst,dst "+mark)
}

func TestMasquerading(t *testing.T) {
	o := ruleOptions()
	o.MasqueradeBit = 9
	inOrder(t, chain(t, o, state.IPv4, "nat", "KIPVS-POSTROUTING"),
		"-m set --match-set KIPVS-HAIRPIN dst,dst,src -j MASQUERADE --random-fully", // S78
		"-m set --match-set KIPVS-ADDRESS src -j MASQUERADE --random-fully",         // S37, S77: the node's own calls
		"-m mark ! --mark 0x200/0x200 -j RETURN",                                    // S73
		"-j MARK --set-xmark 0x200/0x0",
		"-j MASQUERADE --random-fully")
	o.RandomFully = false
	for _, r := range chain(t, o, state.IPv4, "nat", "KIPVS-POSTROUTING") {
		if strings.Contains(r, "random-fully") {
			t.Errorf("S73: rule %q although iptables has no such option", r)
		}
	}
}

// TestLetIn holds what passes whatever the host's own policies are. Calls to
// Services pass INPUT and leave by OUTPUT; only replies are forwarded.
func TestLetIn(t *testing.T) {
	t.Log("S71: health-check node ports")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "filter", "KIPVS-INPUT"), "-m set --match-set KIPVS-HEALTH dst,dst -j ACCEPT")
	t.Log("S79: replies in FORWARD")
	inOrder(t, chain(t, ruleOptions(), state.IPv4, "filter", "KIPVS-FORWARD"), "-m conntrack --ctstate RELATED,ESTABLISHED -j ACCEPT")
}

func TestDetectorSets(t *testing.T) {
	self := &state.Self{Node: "node1", PodCIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:244:1::/64")}}
	cidrs := func(texts ...string) (all []netip.Prefix) {
		for _, t := range texts {
			all = append(all, netip.MustParsePrefix(t))
		}
		return all
	}
	for name, c := range map[string]struct {
		in     Detector
		v4, v6 []netip.Prefix
	}{
		"S81 by family":        {Detector{CIDRs: cidrs("fd00:244::/32", "10.244.0.0/16")}, cidrs("10.244.0.0/16"), cidrs("fd00:244::/32")},
		"S81 one family only":  {Detector{CIDRs: cidrs("10.244.0.0/16")}, cidrs("10.244.0.0/16"), nil},
		"S82 the Node's":       {Detector{NodeCIDRs: true}, cidrs("10.244.1.0/24"), cidrs("fd00:244:1::/64")},
		"S83 a device, no set": {Detector{Interface: "cni0"}, nil, nil},
	} {
		t.Run(name, func(t *testing.T) {
			o := ruleOptions()
			o.Detector = c.in
			want := NewIndex(o, self).Want()
			for set, prefixes := range map[string][]netip.Prefix{"KIPVS-POD": c.v4, "KIPVS6-POD": c.v6} {
				entries := want.Sets[set].Entries
				if len(entries) != len(prefixes) {
					t.Errorf("%s: %v, want %v", set, entries, prefixes)
				}
				for _, p := range prefixes {
					if _, ok := entries[state.Entry{Net: p}]; !ok {
						t.Errorf("%s: no %s in %v", set, p, entries)
					}
				}
			}
		})
	}
}
