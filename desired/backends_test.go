package desired

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// endpoints reads "1 ready here", "2 terminating zone=b", one endpoint a word
// list; the first word is the last byte of its address 10.244.0.x.
func endpoints(texts ...string) map[string]*state.Slice {
	s := &state.Slice{
		Family: state.IPv4,
		Ports:  []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}},
	}
	for _, text := range texts {
		words := strings.Fields(text)
		var last byte
		fmt.Sscan(words[0], &last)
		e := state.Endpoint{Addr: netip.AddrFrom4([4]byte{10, 244, 0, last}), Node: "node2"}
		for _, w := range words[1:] {
			describe(&e, w)
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return map[string]*state.Slice{"s": s}
}

func describe(e *state.Endpoint, word string) {
	key, value, _ := strings.Cut(word, "=")
	switch key {
	case "ready":
		e.Ready, e.Serving = true, true
	case "terminating":
		e.Terminating, e.Serving = true, true
	case "stopped":
		e.Terminating = true
	case "here":
		e.Node = "node1"
	case "nowhere":
		e.Node = ""
	case "zone":
		e.Zones = append(e.Zones, value)
	case "node":
		e.HintNodes = append(e.HintNodes, value)
	}
}

func lastBytes(b []backend) string {
	var s []string
	for _, x := range b {
		s = append(s, fmt.Sprint(x.at.Addr().As4()[3]))
	}
	return strings.Join(s, " ")
}

func TestChoose(t *testing.T) {
	for name, c := range map[string]struct {
		endpoints      []string
		cluster, local string
		any            bool
	}{
		"S25 ready ones":                                 {[]string{"1 ready", "2 ready here", "3", "4 terminating"}, "1 2", "2", true},
		"S25 terminating ones stand in":                  {[]string{"1 terminating", "2 terminating here", "3 stopped"}, "1 2", "2", true},
		"S25 one ready anywhere ends that":               {[]string{"1 ready", "2 terminating here"}, "1", "2", true},
		"S26 local ready before local terminating":       {[]string{"1 ready here", "2 terminating here"}, "1", "1", true},
		"S23 no node name is remote":                     {[]string{"1 ready nowhere"}, "1", "", true},
		"S27 stopped is never used":                      {[]string{"1 stopped", "2"}, "", "", false},
		"S40 nobody":                                     {nil, "", "", false},
		"S44 node hints":                                 {[]string{"1 ready node=node1 zone=b", "2 ready node=node2 zone=a"}, "1", "", true},
		"S45 zone hints":                                 {[]string{"1 ready zone=a", "2 ready zone=b"}, "1", "", true},
		"S45 zone hints where no node hint is mine":      {[]string{"1 ready zone=a node=x", "2 ready zone=b node=y"}, "1", "", true},
		"S46 one without a hint":                         {[]string{"1 ready zone=a", "2 ready"}, "1 2", "", true},
		"S46 no hint for this zone":                      {[]string{"1 ready zone=c", "2 ready zone=b"}, "1 2", "", true},
		"S26 hints do not apply to Local":                {[]string{"1 ready here zone=b", "2 ready zone=a"}, "2", "1", true},
		"S25 hints do not apply to terminating ones":     {[]string{"1 terminating zone=a", "2 terminating zone=b"}, "1 2", "", true},
		"S44 a hint of an endpoint that is not ready":    {[]string{"1 ready zone=a", "2 zone=b", "3"}, "1", "", true},
		"S22 ready and terminating is published":         {[]string{"1 ready terminating"}, "1", "", true},
		"S24 the same address twice, once terminating":   {[]string{"1 terminating", "1 ready", "2 ready"}, "1 2", "", true},
		"S24 the same, the other way round":              {[]string{"1 ready", "1 terminating", "2 ready"}, "1 2", "", true},
		"S24 a terminating twin does not revive stopped": {[]string{"1 stopped", "1 stopped"}, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			self := &state.Self{Node: "node1", Zone: "a"}
			p := choose(endpoints(c.endpoints...), state.IPv4, port{name: "http", protocol: state.TCP}, self)
			if got := lastBytes(p.cluster); got != c.cluster {
				t.Errorf("cluster: want %q, got %q", c.cluster, got)
			}
			if got := lastBytes(p.local); got != c.local {
				t.Errorf("local: want %q, got %q", c.local, got)
			}
			if p.any != c.any {
				t.Errorf("any: %t", p.any)
			}
		})
	}
}

func TestS47NoZoneLabelMeansNoFilter(t *testing.T) {
	p := choose(endpoints("1 ready zone=a", "2 ready zone="), state.IPv4, port{name: "http", protocol: state.TCP}, &state.Self{Node: "node1"})
	if got := lastBytes(p.cluster); got != "1 2" {
		t.Errorf("got %q", got)
	}
}

func TestS12PortsAreMatchedByNameAndProtocol(t *testing.T) {
	slices := endpoints("1 ready")
	slices["s"].Ports = []state.SlicePort{
		{Name: "http", Protocol: state.TCP, Port: 8081}, {Name: "http", Protocol: state.UDP, Port: 9}, {Name: "www", Protocol: state.TCP, Port: 7},
	}
	other := endpoints("1 ready")
	other["s"].Ports[0].Port = 8082
	slices["t"] = other["s"]
	all := collect(slices, state.IPv4, port{name: "http", protocol: state.TCP})
	if len(all) != 2 || all[0].at.Port() != 8081 || all[1].at.Port() != 8082 {
		t.Errorf("got %v", all)
	}
}

func TestS6OtherFamilyIsIgnored(t *testing.T) {
	if all := collect(endpoints("1 ready"), state.IPv6, port{name: "http", protocol: state.TCP}); len(all) != 0 {
		t.Errorf("got %v", all)
	}
}

func TestDrainingEndpointsKeepWeightZero(t *testing.T) {
	p := choose(endpoints("1 ready", "2 terminating", "3"), state.IPv4, port{name: "http", protocol: state.TCP}, &state.Self{Node: "node1"})
	at := func(n byte) netip.AddrPort { return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 244, 0, n}), 8080) }
	tcp, udp := weights(p.cluster, p.all, state.TCP), weights(p.cluster, p.all, state.UDP)
	if tcp[at(1)] != 1 || !has(tcp, at(2)) || tcp[at(2)] != 0 || !has(tcp, at(3)) {
		t.Errorf("TCP: %v", tcp)
	}
	if udp[at(1)] != 1 || !has(udp, at(2)) || has(udp, at(3)) {
		t.Errorf("UDP keeps only what still serves: %v", udp)
	}
}

func has(m map[netip.AddrPort]int, at netip.AddrPort) bool { _, ok := m[at]; return ok }

func TestParseScheduler(t *testing.T) {
	for text, want := range map[string]Scheduler{
		"":                {Name: "rr"},
		"lc":              {Name: "lc"},
		"sh":              {Name: "sh", Flags: state.Sched1},
		"sh,sh-port":      {Name: "sh", Flags: state.Sched1 | state.Sched2},
		"mh":              {Name: "mh", Flags: state.Sched1 | state.Sched2},
		"mh, mh-fallback": {Name: "mh", Flags: state.Sched1},
		"mh,mh-port":      {Name: "mh", Flags: state.Sched1 | state.Sched2},
	} {
		if got, err := ParseScheduler(text); err != nil || got != want {
			t.Errorf("%q: want %v, got %v, %v", text, want, got, err)
		}
	}
	for text, word := range map[string]string{
		"wr": "unknown", "rr,sh-port": "no flag", "mh,sh-port": "no flag", "rr,ops": "cannot work", ",x": "unknown",
	} {
		if _, err := ParseScheduler(text); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%q: want an error with %q, got %v", text, word, err)
		}
	}
}

func TestNodePortAddresses(t *testing.T) {
	addrs := func(texts ...string) (a []netip.Addr) {
		for _, t := range texts {
			a = append(a, netip.MustParseAddr(t))
		}
		return a
	}
	self := &state.Self{Addresses: addrs("192.0.2.11", "192.168.7.1", "2001:db8::11"), NodeIPs: addrs("192.0.2.11", "2001:db8::11")}
	cidr := []netip.Prefix{netip.MustParsePrefix("192.168.0.0/16")}
	for name, c := range map[string]struct {
		n      NodePortAddresses
		v4, v6 []netip.Addr
	}{
		"S59 default is all":                     {NodePortAddresses{}, addrs("192.0.2.11", "192.168.7.1"), addrs("2001:db8::11")},
		"S59 a family without a CIDR serves all": {NodePortAddresses{CIDRs: cidr}, addrs("192.168.7.1"), addrs("2001:db8::11")},
		"S60 primary":                            {NodePortAddresses{Primary: true}, addrs("192.0.2.11"), addrs("2001:db8::11")},
		"S60 primary and a CIDR":                 {NodePortAddresses{Primary: true, CIDRs: cidr}, addrs("192.0.2.11", "192.168.7.1"), addrs("2001:db8::11")},
		"S60 localhost":                          {NodePortAddresses{Localhost: true}, nil, nil},
		"S60 localhost and a CIDR":               {NodePortAddresses{Localhost: true, CIDRs: cidr}, addrs("192.168.7.1"), nil},
		"S60 all":                                {NodePortAddresses{All: true, CIDRs: cidr}, addrs("192.0.2.11", "192.168.7.1"), addrs("2001:db8::11")},
	} {
		if got := c.n.of(state.IPv4, self); !slices.Equal(got, c.v4) {
			t.Errorf("%s: IPv4: want %v, got %v", name, c.v4, got)
		}
		if got := c.n.of(state.IPv6, self); !slices.Equal(got, c.v6) {
			t.Errorf("%s: IPv6: want %v, got %v", name, c.v6, got)
		}
	}
}

func TestMarksAvoidTheMasqueradeBitAndEachOther(t *testing.T) {
	m := newMarks(14)
	seen := map[uint32]bool{}
	for i := range 5000 {
		k := portKey{service: state.Name{Namespace: "ns", Name: fmt.Sprint(i)}, protocol: state.TCP, number: 80}
		mark := m.of(k)
		if mark&markMask != markBlock || mark&(1<<14) != 0 || seen[mark] || m.of(k) != mark {
			t.Fatalf("mark %#x of %v", mark, k)
		}
		seen[mark] = true
	}
	m.forget(state.Name{Namespace: "ns", Name: "7"})
	if len(m.given) != 4999 || len(m.taken) != 4999 {
		t.Errorf("%d given, %d taken", len(m.given), len(m.taken))
	}
}
