package scenario

import (
	"fmt"
	"net/netip"
	"slices"
)

// Family is the address family that one run of a file takes its names in.
type Family string

// The families of a file.
const (
	IPv4 Family = "ipv4"
	IPv6 Family = "ipv6"
)

// HostSpec is one host of the standard topology.
type HostSpec struct {
	Name   string
	IPv4   netip.Addr
	IPv6   netip.Addr
	Node   string       // the node that a pod hangs off; empty for nodes and outside hosts
	Zone   string       // of a node
	PodsV4 netip.Prefix // pod CIDRs of a node
	PodsV6 netip.Prefix
	Ports  []uint16 // of its echo server, on TCP, UDP and SCTP and on all of its addresses
}

// IsNode says whether the host is a node of the cluster.
func (h HostSpec) IsNode() bool { return h.Zone != "" }

// IsPod says whether the host is a pod.
func (h HostSpec) IsPod() bool { return h.Node != "" }

// Addr is the host's address in a family.
func (h HostSpec) Addr(f Family) netip.Addr {
	if f == IPv6 {
		return h.IPv6
	}
	return h.IPv4
}

// Hosts returns the standard topology: two nodes, two pods on each, a client on the nodes' link and one behind a
// router.
func Hosts() []HostSpec {
	podPorts := []uint16{8080, 8081, 9090}
	node := func(name, zone, v4, v6, pods4, pods6 string) HostSpec {
		return HostSpec{
			Name: name, Zone: zone, IPv4: netip.MustParseAddr(v4), IPv6: netip.MustParseAddr(v6),
			PodsV4: netip.MustParsePrefix(pods4), PodsV6: netip.MustParsePrefix(pods6), Ports: []uint16{10022},
		}
	}
	pod := func(name, node, v4, v6 string) HostSpec {
		return HostSpec{Name: name, Node: node, IPv4: netip.MustParseAddr(v4), IPv6: netip.MustParseAddr(v6), Ports: podPorts}
	}
	outside := func(name, v4, v6 string) HostSpec {
		return HostSpec{Name: name, IPv4: netip.MustParseAddr(v4), IPv6: netip.MustParseAddr(v6)}
	}
	return []HostSpec{
		node("node1", "zone-a", "192.0.2.11", "2001:db8:2::11", "10.244.1.0/24", "fd00:244:1::/64"),
		node("node2", "zone-b", "192.0.2.12", "2001:db8:2::12", "10.244.2.0/24", "fd00:244:2::/64"),
		pod("a1", "node1", "10.244.1.11", "fd00:244:1::11"),
		pod("a2", "node1", "10.244.1.12", "fd00:244:1::12"),
		pod("b1", "node2", "10.244.2.11", "fd00:244:2::11"),
		pod("b2", "node2", "10.244.2.12", "fd00:244:2::12"),
		outside("client", "192.0.2.100", "2001:db8:2::100"),
		outside("far", "198.51.100.100", "2001:db8:f::100"),
	}
}

// FindHost returns the host of that name.
func FindHost(name string) (HostSpec, bool) {
	hosts := Hosts()
	i := slices.IndexFunc(hosts, func(h HostSpec) bool { return h.Name == name })
	if i < 0 {
		return HostSpec{}, false
	}
	return hosts[i], true
}

// Address is the address that a name stands for: a host's own, vip1 to vip9 (load-balancer and external
// addresses) and cluster1 to cluster9 (ClusterIPs).
func Address(name string, f Family) (netip.Addr, bool) {
	if h, ok := FindHost(name); ok {
		return h.Addr(f), true
	}
	var kind string
	var n int
	for _, k := range []string{"vip", "cluster"} {
		if len(name) == len(k)+1 && name[:len(k)] == k && name[len(k)] >= '1' && name[len(k)] <= '9' {
			kind, n = k, int(name[len(k)]-'0')
		}
	}
	form := map[string]string{
		"vip" + string(IPv4): "203.0.113.%d", "vip" + string(IPv6): "2001:db8:113::%d",
		"cluster" + string(IPv4): "10.96.0.10%d", "cluster" + string(IPv6): "fd00:96::10%d",
	}[kind+string(f)]
	if form == "" {
		return netip.Addr{}, false
	}
	return netip.MustParseAddr(fmt.Sprintf(form, n)), true
}
