package world

import (
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// Besides the hosts that scenarios name there is the router, which is the nodes' link (a bridge), the nodes' gateway,
// and what stands before the host `far`.
const (
	routerName = "router"
	bridgeName = "br0"
	// farTable is the router's routing table for what comes from the nodes' link: it knows far, and loses everything
	// else without a word. What comes from far is routed by the main table, into the cluster.
	farTable = 100
)

// netnsDir is where ip(8) looks for network namespaces.
const netnsDir = "/run/netns"

// plan holds the addresses that are nobody's in the list of hosts.
type plan struct {
	onLink, toFar []netip.Prefix // the router's addresses
	services      []netip.Prefix // load-balancer and external addresses, and the Service CIDRs
	everything    []netip.Prefix
	podGateways   []netip.Addr // link-local, owned by nobody; their neighbour entry is the node's end of the cable
}

func newPlan() plan {
	return plan{
		onLink:      prefixes("192.0.2.1/24", "2001:db8:2::1/64"),
		toFar:       prefixes("198.51.100.1/24", "2001:db8:f::1/64"),
		services:    prefixes("203.0.113.0/24", "2001:db8:113::/64", "10.96.0.0/16", "fd00:96::/112"),
		everything:  prefixes("0.0.0.0/0", "::/0"),
		podGateways: []netip.Addr{netip.MustParseAddr("169.254.1.1"), netip.MustParseAddr("fe80::1")},
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var all []netip.Prefix
	for _, text := range texts {
		all = append(all, netip.MustParsePrefix(text))
	}
	return all
}

// plugged is a host and its place in the list of hosts, which its hardware addresses are made of.
type plugged struct {
	scenario.HostSpec
	index int
}

func hosts() []plugged {
	var all []plugged
	for i, h := range scenario.Hosts() {
		all = append(all, plugged{h, i})
	}
	return all
}

func (p plugged) mac() net.HardwareAddr { return net.HardwareAddr{2, 0, 0, 0, 0, byte(p.index + 1)} }
func (p plugged) peerMAC() net.HardwareAddr {
	return net.HardwareAddr{2, 0, 0, 0, 1, byte(p.index + 1)}
}

// peer is the other end of the host's eth0: which host it is in and how it is called there.
func (p plugged) peer() (host, device string) {
	if p.IsPod() {
		return p.Node, "pod-" + p.Name
	}
	return routerName, p.Name
}

// hostPrefixes are the host's addresses alone.
func (p plugged) hostPrefixes() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(p.IPv4, 32), netip.PrefixFrom(p.IPv6, 128)}
}

// linkPrefixes are the host's addresses with the length of its link.
func (p plugged) linkPrefixes() []netip.Prefix {
	return []netip.Prefix{netip.PrefixFrom(p.IPv4, 24), netip.PrefixFrom(p.IPv6, 64)}
}

// buildTopology makes all hosts and connects them. The keys of the result are the hosts' names and router. The folders
// in keep stay visible in each.
func buildTopology(keep ...string) (map[string]*netns.Space, error) {
	spaces, err := makeSpaces(keep)
	if err == nil {
		err = connect(spaces)
	}
	if err != nil {
		closeSpaces(spaces)
		return nil, err
	}
	return spaces, nil
}

func makeSpaces(keep []string) (map[string]*netns.Space, error) {
	spaces := map[string]*netns.Space{}
	names := []string{routerName}
	for _, h := range hosts() {
		names = append(names, h.Name)
	}
	for _, name := range names {
		space, err := netns.New(netnsDir, name, keep...)
		if err != nil {
			return spaces, err
		}
		spaces[name] = space
		if err := space.Do(setSysctls); err != nil {
			return spaces, fmt.Errorf("sysctls of %s: %w", name, err)
		}
	}
	return spaces, nil
}

func closeSpaces(spaces map[string]*netns.Space) {
	for _, s := range spaces {
		s.Close()
	}
}

func connect(spaces map[string]*netns.Space) error {
	if err := setUp(spaces[routerName], cables(spaces)); err != nil {
		return fmt.Errorf("connecting the hosts: %w", err)
	}
	p := newPlan()
	for _, h := range hosts() {
		if err := setUp(spaces[h.Name], append([]wire{up("eth0")}, p.host(h)...)); err != nil {
			return fmt.Errorf("network of %s: %w", h.Name, err)
		}
	}
	if err := setUp(spaces[routerName], p.router()); err != nil {
		return fmt.Errorf("network of the router: %w", err)
	}
	return spaces[routerName].Do(passBridge)
}

// cables are the pairs of devices between hosts. eth0 comes before the pods' devices, since the kernel prefers the
// address of an earlier device as source.
func cables(spaces map[string]*netns.Space) []wire {
	var outer, pods []wire
	for _, h := range hosts() {
		other, device := h.peer()
		w := cable(spaces[h.Name], "eth0", h.mac(), spaces[other], device, h.peerMAC())
		if h.IsPod() {
			pods = append(pods, w)
		} else {
			outer = append(outer, w)
		}
	}
	return append(outer, pods...)
}

func (p plan) host(h plugged) []wire {
	switch {
	case h.IsNode():
		return p.node(h)
	case h.IsPod():
		return p.pod(h)
	}
	return p.outside(h)
}

func (p plan) node(node plugged) []wire {
	wires := addresses(node.linkPrefixes(), "eth0")
	wires = append(wires, p.defaultRoutes(p.onLink)...)
	for _, h := range hosts() {
		switch {
		case h.IsNode() && h.Name != node.Name:
			wires = append(wires, podRoutes(h)...)
		case h.Node == node.Name:
			_, device := h.peer()
			wires = append(wires, up(device))
			for _, prefix := range h.hostPrefixes() {
				wires = append(wires, direct(prefix, device, 0))
			}
		}
	}
	return wires
}

func (p plan) pod(pod plugged) []wire {
	wires := addresses(pod.hostPrefixes(), "eth0")
	for i, gateway := range p.podGateways {
		wires = append(wires, neighbour(gateway, pod.peerMAC(), "eth0"))
		if gateway.Is4() {
			wires = append(wires, direct(netip.PrefixFrom(gateway, 32), "eth0", 0))
		}
		wires = append(wires, via(p.everything[i], gateway, "eth0"))
	}
	return wires
}

// outside is client or far. Behind the router the router knows the way.
func (p plan) outside(host plugged) []wire {
	wires := addresses(host.linkPrefixes(), "eth0")
	if host.Name == "far" {
		return append(wires, p.defaultRoutes(p.toFar)...)
	}
	wires = append(wires, p.defaultRoutes(p.onLink)...)
	return append(wires, p.clusterRoutes()...)
}

func (p plan) router() []wire {
	var wires []wire
	var ports []string
	for _, h := range hosts() {
		if host, device := h.peer(); host == routerName {
			wires = append(wires, up(device))
			if device != "far" {
				ports = append(ports, device)
			}
		}
	}
	wires = append(wires, bridge(bridgeName, ports...)...)
	wires = append(wires, addresses(p.onLink, bridgeName)...)
	wires = append(wires, addresses(p.toFar, "far")...)
	wires = append(wires, p.clusterRoutes()...)
	far, _ := scenario.FindHost("far")
	for i, family := range []int{netlink.FAMILY_V4, netlink.FAMILY_V6} {
		wires = append(wires,
			blackhole(p.everything[i], 0),
			blackhole(p.everything[i], farTable),
			direct(plugged{HostSpec: far}.hostPrefixes()[i], "far", farTable),
			fromDevice(bridgeName, farTable, family))
	}
	return wires
}

// clusterRoutes are the routes of an outside host on the nodes' link: pods by their node, Services by node1.
func (p plan) clusterRoutes() []wire {
	var wires []wire
	for _, h := range hosts() {
		if h.IsNode() {
			wires = append(wires, podRoutes(h)...)
		}
	}
	node1, _ := scenario.FindHost("node1")
	for _, prefix := range p.services {
		gateway := node1.IPv4
		if prefix.Addr().Is6() {
			gateway = node1.IPv6
		}
		wires = append(wires, via(prefix, gateway, ""))
	}
	return wires
}

func podRoutes(node plugged) []wire {
	return []wire{via(node.PodsV4, node.IPv4, ""), via(node.PodsV6, node.IPv6, "")}
}

func (p plan) defaultRoutes(gateways []netip.Prefix) []wire {
	var wires []wire
	for i, gateway := range gateways {
		wires = append(wires, via(p.everything[i], gateway.Addr(), ""))
	}
	return wires
}

func addresses(list []netip.Prefix, device string) []wire {
	var wires []wire
	for _, prefix := range list {
		wires = append(wires, address(prefix, device))
	}
	return wires
}

// setSysctls is done before there are devices, so that each device begins with the values of `default`. A namespace
// takes some of its values from the root one; what a scenario needs is said here.
func setSysctls() error {
	settings := []string{
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		"net.ipv4.conf.all.rp_filter=0", "net.ipv4.conf.default.rp_filter=0",
		"net.ipv4.conf.all.send_redirects=0", "net.ipv4.conf.default.send_redirects=0",
		"net.ipv4.conf.all.accept_redirects=0", "net.ipv4.conf.default.accept_redirects=0",
		"net.ipv6.conf.all.accept_redirects=0", "net.ipv6.conf.default.accept_redirects=0",
		"net.ipv6.conf.all.accept_ra=0", "net.ipv6.conf.default.accept_ra=0",
		"net.ipv6.conf.all.accept_dad=0", "net.ipv6.conf.default.accept_dad=0",
	}
	for _, s := range settings {
		key, value, _ := strings.Cut(s, "=")
		if err := os.WriteFile("/proc/sys/"+strings.ReplaceAll(key, ".", "/"), []byte(value), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// passBridge keeps packet filters away from what only crosses the bridge.
func passBridge() error {
	for _, family := range []string{"ip", "ip6", "arp"} {
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+family+"tables", []byte("0"), 0o644)
		if err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
	}
	return nil
}
