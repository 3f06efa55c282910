package world

import (
	"bytes"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// Besides the hosts that scenarios name there is the router, which is the nodes' link (a bridge), the nodes' gateway,
// and what stands before the host `far`.
const routerName = "router"

var (
	routerOnLink = []string{"192.0.2.1/24", "2001:db8:2::1/64"}
	routerToFar  = []string{"198.51.100.1/24", "2001:db8:f::1/64"}
	// The way into the cluster for outside hosts: load-balancer and external addresses, and the Service CIDRs.
	servicePrefixes = []string{"203.0.113.0/24", "2001:db8:113::/64", "10.96.0.0/16", "fd00:96::/112"}
)

// A pod's gateway is a link-local address that nobody owns, with the neighbour entry of its node's end of the cable.
const (
	podGateway4 = "169.254.1.1"
	podGateway6 = "fe80::1"
)

// netnsDir is where ip(8) looks for network namespaces.
const netnsDir = "/run/netns"

// plugged is a host and its place in the list of hosts, which its hardware addresses are made of.
type plugged struct {
	scenario.HostSpec
	index int
}

func (p plugged) mac() string     { return fmt.Sprintf("02:00:00:00:00:%02x", p.index+1) }
func (p plugged) peerMAC() string { return fmt.Sprintf("02:00:00:00:01:%02x", p.index+1) }

// peer is the other end of the host's eth0: which namespace it is in and how it is called there.
func (p plugged) peer() (namespace, device string) {
	if p.IsPod() {
		return p.Node, "pod-" + p.Name
	}
	return routerName, p.Name
}

func hosts() []plugged {
	var all []plugged
	for i, h := range scenario.Hosts() {
		all = append(all, plugged{h, i})
	}
	return all
}

// buildTopology makes all network namespaces and connects them. The keys of the result are the hosts' names and router.
// The folders in keep stay visible in each.
func buildTopology(keep ...string) (map[string]*netns.Space, error) {
	spaces := map[string]*netns.Space{}
	err := func() error {
		for _, name := range append([]string{routerName}, hostNames()...) {
			space, err := netns.New(netnsDir, name, keep...)
			if err != nil {
				return err
			}
			spaces[name] = space
			if err := space.Do(setSysctls); err != nil {
				return fmt.Errorf("sysctls of %s: %w", name, err)
			}
		}
		if err := ipBatch(cables()); err != nil {
			return fmt.Errorf("connecting the hosts: %w", err)
		}
		for name, lines := range hostLines() {
			if err := spaces[name].Do(func() error { return ipBatch(lines) }); err != nil {
				return fmt.Errorf("network of %s: %w", name, err)
			}
		}
		return spaces[routerName].Do(finishRouter)
	}()
	if err != nil {
		closeSpaces(spaces)
		return nil, err
	}
	return spaces, nil
}

func hostNames() []string {
	var names []string
	for _, h := range scenario.Hosts() {
		names = append(names, h.Name)
	}
	return names
}

func closeSpaces(spaces map[string]*netns.Space) {
	for _, s := range spaces {
		s.Close()
	}
}

// setSysctls is done before there are devices, so that each device begins with the values of `default`.
func setSysctls() error {
	settings := []string{
		"net.ipv4.ip_forward=1", "net.ipv6.conf.all.forwarding=1",
		// A namespace takes its values from the root one; what a scenario needs is said here.
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

// cables are the pairs of devices between hosts, as lines for ip(8). eth0 comes before the pods' devices, since the
// kernel prefers the address of an earlier device as source.
func cables() []string {
	var outer, pods []string
	for _, h := range hosts() {
		namespace, device := h.peer()
		line := fmt.Sprintf("link add eth0 address %s netns %s type veth peer name %s address %s netns %s",
			h.mac(), h.Name, device, h.peerMAC(), namespace)
		if h.IsPod() {
			pods = append(pods, line)
		} else {
			outer = append(outer, line)
		}
	}
	return append(outer, pods...)
}

// hostLines are the lines for ip(8) inside each host.
func hostLines() map[string][]string {
	lines := map[string][]string{routerName: routerLines()}
	for _, h := range hosts() {
		own := []string{"link set lo up", "link set eth0 up"}
		switch {
		case h.IsNode():
			own = append(own, nodeLines(h)...)
		case h.IsPod():
			own = append(own, podLines(h)...)
		default:
			own = append(own, outsideLines(h)...)
		}
		lines[h.Name] = own
	}
	return lines
}

func nodeLines(node plugged) []string {
	lines := []string{
		addAddress(node.IPv4.String()+"/24", "eth0"),
		addAddress(node.IPv6.String()+"/64", "eth0"),
	}
	lines = append(lines, defaultRoutes(routerOnLink)...)
	for _, h := range hosts() {
		switch {
		case h.IsNode() && h.Name != node.Name:
			lines = append(lines, podRoutes(h)...)
		case h.Node == node.Name:
			_, device := h.peer()
			lines = append(lines, "link set "+device+" up",
				"route add "+h.IPv4.String()+"/32 dev "+device,
				"route add "+h.IPv6.String()+"/128 dev "+device)
		}
	}
	return lines
}

func podLines(pod plugged) []string {
	return []string{
		addAddress(pod.IPv4.String()+"/32", "eth0"),
		addAddress(pod.IPv6.String()+"/128", "eth0"),
		"neigh add " + podGateway4 + " lladdr " + pod.peerMAC() + " dev eth0 nud permanent",
		"neigh add " + podGateway6 + " lladdr " + pod.peerMAC() + " dev eth0 nud permanent",
		"route add " + podGateway4 + " dev eth0 scope link",
		"route add default via " + podGateway4 + " dev eth0",
		"route add default via " + podGateway6 + " dev eth0",
	}
}

// outsideLines are those of client and far. Behind the router the router knows the way.
func outsideLines(host plugged) []string {
	lines := []string{addAddress(host.IPv4.String()+"/24", "eth0"), addAddress(host.IPv6.String()+"/64", "eth0")}
	if host.Name == "far" {
		return append(lines, defaultRoutes(routerToFar)...)
	}
	lines = append(lines, defaultRoutes(routerOnLink)...)
	return append(lines, clusterRoutes()...)
}

// clusterRoutes are the routes of an outside host on the nodes' link: pods by their node, Services by node1.
func clusterRoutes() []string {
	var lines []string
	for _, h := range hosts() {
		if h.IsNode() {
			lines = append(lines, podRoutes(h)...)
		}
	}
	node1, _ := scenario.FindHost("node1")
	for _, p := range servicePrefixes {
		lines = append(lines, "route add "+p+" via "+sameFamily(p, node1).String())
	}
	return lines
}

func podRoutes(node plugged) []string {
	return []string{
		"route add " + node.PodsV4.String() + " via " + node.IPv4.String(),
		"route add " + node.PodsV6.String() + " via " + node.IPv6.String(),
	}
}

func sameFamily(prefix string, host scenario.HostSpec) netip.Addr {
	if netip.MustParsePrefix(prefix).Addr().Is4() {
		return host.IPv4
	}
	return host.IPv6
}

// farTable is the router's routing table for what comes from the nodes' link: it knows far, and loses everything else
// without a word. What comes from far is routed by the main table, into the cluster.
const farTable = "100"

func routerLines() []string {
	lines := []string{
		"link set lo up",
		"link add br0 type bridge stp_state 0 forward_delay 0 mcast_snooping 0",
		"link set br0 up",
	}
	for _, h := range hosts() {
		if namespace, device := h.peer(); namespace == routerName {
			lines = append(lines, "link set "+device+" up")
			if h.Name != "far" {
				lines = append(lines, "link set "+device+" master br0")
			}
		}
	}
	for i := range routerOnLink {
		lines = append(lines, addAddress(routerOnLink[i], "br0"), addAddress(routerToFar[i], "far"))
	}
	far, _ := scenario.FindHost("far")
	lines = append(lines, clusterRoutes()...)
	lines = append(lines, "route add blackhole 0.0.0.0/0", "route add blackhole ::/0",
		"rule add iif br0 lookup "+farTable,
		"route add "+far.IPv4.String()+"/32 dev far table "+farTable,
		"route add "+far.IPv6.String()+"/128 dev far table "+farTable,
		"route add blackhole 0.0.0.0/0 table "+farTable,
		"route add blackhole ::/0 table "+farTable)
	return lines
}

// finishRouter does what a batch of both families cannot, and keeps the bridge out of the way of packet filters.
func finishRouter() error {
	for _, family := range []string{"ip", "ip6", "arp"} {
		err := os.WriteFile("/proc/sys/net/bridge/bridge-nf-call-"+family+"tables", []byte("0"), 0o644)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
	}
	return ipBatch([]string{"rule add iif br0 lookup " + farTable}, "-6")
}

func addAddress(prefix, device string) string {
	line := "addr add " + prefix + " dev " + device
	if strings.Contains(prefix, ":") {
		line += " nodad"
	}
	return line
}

func defaultRoutes(gateways []string) []string {
	var lines []string
	for _, g := range gateways {
		lines = append(lines, "route add default via "+netip.MustParsePrefix(g).Addr().String())
	}
	return lines
}

// ipBatch runs ip(8) once with these lines, in the namespaces of the calling thread.
func ipBatch(lines []string, options ...string) error {
	cmd := exec.Command("ip", append(options, "-batch", "-")...)
	cmd.Stdin = bytes.NewReader([]byte(strings.Join(lines, "\n") + "\n"))
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch: %w: %s", err, bytes.TrimSpace(out))
	}
	return nil
}
