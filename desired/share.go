package desired

import (
	"net/netip"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Share is what one Service does to the node.
type Share struct {
	Service state.Name
	Created time.Time
	Fronts  []*Frontend
	// hairpins are the local endpoints that may be reached by themselves.
	hairpins []member
	health   []member
	Check    *state.HealthCheck
	Problems []Problem
	// NoLocal says, by policy (internal, external) and family, that there are
	// endpoints elsewhere but none on this node although the policy is Local.
	NoLocal map[Policy]bool
}

// Policy names a traffic policy in a family, as metrics label them.
type Policy struct {
	Family   state.Family
	External bool
}

// compiler holds what is worked out once for a Service.
type compiler struct {
	svc    *state.Service
	slices map[string]*state.Slice
	self   *state.Self
	opts   *Options
	mark   func(port) uint32

	scheduler   Scheduler
	clusterIPs  map[state.Family][]netip.Addr
	ingress     map[state.Family][]netip.Addr
	externalIPs map[state.Family][]netip.Addr
	// ranges has a family only where sources are restricted in it.
	ranges map[state.Family][]netip.Prefix
	share  *Share
}

// Compile works out a Service's share. mark gives the packet mark of a Service
// port, the same for as long as the Service has that port.
func Compile(svc *state.Service, from map[string]*state.Slice, self *state.Self, opts *Options, mark func(protocol state.Protocol, number uint16) uint32) *Share {
	c := &compiler{
		svc: svc, slices: from, self: self, opts: opts,
		mark:  func(p port) uint32 { return mark(p.protocol, p.number) },
		share: &Share{Service: svc.Name, Created: svc.Created, NoLocal: map[Policy]bool{}},
	}
	if !c.counts() {
		return c.share
	}
	c.readScheduler()
	c.readAddresses()
	c.readRanges()
	for _, p := range c.ports() {
		for _, fam := range opts.Families {
			if len(c.clusterIPs[fam]) == 0 {
				continue
			}
			c.share.Fronts = append(c.share.Fronts, c.frontends(p, fam)...)
			c.hairpin(p, fam)
		}
	}
	c.dropRepeated()
	c.checkEndpoints()
	c.healthCheck()
	return c.share
}

// counts tells whether a proxy has to do with the Service at all: it needs a
// cluster IP and must not be an alias of a name.
func (c *compiler) counts() bool {
	if c.svc.Type == "ExternalName" || len(c.svc.ClusterIPs) == 0 {
		return false
	}
	return c.svc.ClusterIPs[0] != "" && c.svc.ClusterIPs[0] != "None"
}

func (c *compiler) complain(reason, format string, args ...any) {
	c.share.Problems = append(c.share.Problems, problem(c.svc, reason, format, args...))
}

func (c *compiler) readScheduler() {
	c.scheduler = c.opts.Scheduler
	if c.svc.Scheduler == "" {
		return
	}
	s, err := ParseScheduler(c.svc.Scheduler)
	if err != nil {
		c.complain(ReasonScheduler, "annotation kube-ipvs.io/scheduler: %v; using %s", err, c.opts.Scheduler.Name)
		return
	}
	if c.opts.Missing[s.Name] {
		c.complain(ReasonScheduler, "annotation kube-ipvs.io/scheduler: this node's kernel has no scheduler %s (module ip_vs_%s); using %s", s.Name, s.Name, c.opts.Scheduler.Name)
		return
	}
	c.scheduler = s
}

// readAddresses sorts the Service's addresses by family. Of the cluster IPs
// the first of each family counts.
func (c *compiler) readAddresses() {
	c.clusterIPs = c.addresses("spec.clusterIPs", c.svc.ClusterIPs)
	for fam, addrs := range c.clusterIPs {
		c.clusterIPs[fam] = addrs[:1]
	}
	var ingress []string
	for _, in := range c.svc.Ingress {
		if in.IP != "" && (in.IPMode == "" || in.IPMode == "VIP") {
			ingress = append(ingress, in.IP)
		}
	}
	c.ingress = c.servable(c.addresses("status.loadBalancer.ingress", ingress), false)
	if !c.opts.IgnoreExternalIPs {
		c.externalIPs = c.servable(c.addresses("spec.externalIPs", c.svc.ExternalIPs), true)
	}
}

func (c *compiler) addresses(field string, texts []string) map[state.Family][]netip.Addr {
	by := map[state.Family][]netip.Addr{}
	for _, t := range texts {
		a, err := state.ParseAddr(t)
		if err != nil || a.IsUnspecified() || a.IsMulticast() || a.IsLoopback() || (a.Is6() && a.IsLinkLocalUnicast()) {
			c.complain(ReasonInvalid, "%s: %q is no address that a Service can have; it is left out", field, t)
			continue
		}
		fam := state.FamilyOf(a)
		if !slices.Contains(by[fam], a) {
			by[fam] = append(by[fam], a)
		}
	}
	return by
}

// servable leaves out the addresses of other nodes: bound here, they would cut
// this node off from that one. That is worth a complaint where a person wrote
// the address; some load balancers hand out node addresses as a rule.
func (c *compiler) servable(by map[state.Family][]netip.Addr, complain bool) map[state.Family][]netip.Addr {
	for fam, addrs := range by {
		by[fam] = slices.DeleteFunc(addrs, func(a netip.Addr) bool {
			node, taken := c.self.Foreign[a]
			if !taken || node == c.self.Node || c.owns(a) {
				return false
			}
			if complain {
				c.complain(ReasonNodeAddr, "%s is an address of node %s; it is served by no other node", a, node)
			}
			return true
		})
	}
	return by
}

// owns tells whether the address is on a device of this node or in its Node
// object, so that it must not be bound a second time.
func (c *compiler) owns(a netip.Addr) bool {
	return slices.Contains(c.self.Addresses, a) || slices.Contains(c.self.NodeIPs, a)
}

// readRanges sorts the source ranges by family. A range of length 0 opens its
// family, and so does having ranges of the other family only.
func (c *compiler) readRanges() {
	c.ranges = map[state.Family][]netip.Prefix{}
	open := map[state.Family]bool{}
	for _, t := range c.svc.SourceRanges {
		p, err := state.ParsePrefix(t)
		if err != nil {
			c.complain(ReasonInvalid, "spec.loadBalancerSourceRanges: %q is no CIDR; it admits nobody", t)
			c.close()
			continue
		}
		fam := state.FamilyOf(p.Addr())
		open[fam] = open[fam] || p.Bits() == 0
		c.ranges[fam] = append(c.ranges[fam], p)
	}
	for fam := range open {
		if open[fam] {
			delete(c.ranges, fam)
		}
	}
}

// close restricts both families, so that a range that cannot be read never
// opens what it was meant to restrict.
func (c *compiler) close() {
	for _, fam := range c.opts.Families {
		if c.ranges[fam] == nil {
			c.ranges[fam] = []netip.Prefix{}
		}
	}
}

// contains tells whether one of the node's addresses is in a range.
func (c *compiler) contains(ranges []netip.Prefix) bool {
	for _, r := range ranges {
		inside := func(a netip.Addr) bool { return r.Contains(a) }
		if slices.ContainsFunc(c.self.Addresses, inside) || slices.ContainsFunc(c.self.NodeIPs, inside) {
			return true
		}
	}
	return false
}

// ports lists the Service's ports that make sense.
func (c *compiler) ports() []port {
	var ps []port
	for _, sp := range c.svc.Ports {
		proto, err := state.ParseProtocol(sp.Protocol)
		if err != nil {
			c.complain(ReasonInvalid, "port %q: %v; it is left out", sp.Name, err)
			continue
		}
		if sp.Port < 1 || sp.Port > 65535 || sp.NodePort < 0 || sp.NodePort > 65535 {
			c.complain(ReasonInvalid, "port %q: number %d or node port %d is out of range; it is left out", sp.Name, sp.Port, sp.NodePort)
			continue
		}
		ps = append(ps, port{name: sp.Name, protocol: proto, number: uint16(sp.Port), nodePort: uint16(sp.NodePort)})
	}
	return ps
}

// reachable tells whether a port can be reached from outside in a family.
func (c *compiler) reachable(p port, fam state.Family) bool {
	return p.nodePort != 0 || len(c.ingress[fam]) > 0 || len(c.externalIPs[fam]) > 0
}

// count notes where a Local policy finds nobody on this node.
func (c *compiler) count(p port, fam state.Family, pools pools) {
	if !pools.any || len(pools.local) > 0 {
		return
	}
	if c.svc.InternalLocal {
		c.share.NoLocal[Policy{Family: fam}] = true
	}
	if c.svc.ExternalLocal && c.reachable(p, fam) {
		c.share.NoLocal[Policy{Family: fam, External: true}] = true
	}
}

// hairpin notes the local endpoints: a call of one to itself through a Service
// must not keep its source, or the answer would never leave the pod. One in the
// node's own network is the node itself.
func (c *compiler) hairpin(p port, fam state.Family) {
	for _, b := range collect(c.slices, fam, p) {
		if b.Node == "" || b.Node != c.self.Node || c.owns(b.at.Addr()) {
			continue
		}
		c.share.hairpins = append(c.share.hairpins, member{set: setHairpin.in(fam), entry: state.Entry{
			Addr: b.at.Addr(), Protocol: p.protocol, Port: b.at.Port(),
			Net: netip.PrefixFrom(b.at.Addr(), b.at.Addr().BitLen()),
		}})
	}
}

// dropRepeated keeps the first frontend of each key: one address may be listed
// as external and as load-balancer address.
func (c *compiler) dropRepeated() {
	seen := map[state.ServerKey]bool{}
	c.share.Fronts = slices.DeleteFunc(c.share.Fronts, func(f *Frontend) bool {
		repeated := seen[f.Key]
		seen[f.Key] = true
		return repeated
	})
}

// checkEndpoints complains of endpoints that no host can have.
func (c *compiler) checkEndpoints() {
	for _, s := range c.slices {
		for _, e := range s.Endpoints {
			if !isHost(e.Addr) {
				c.complain(ReasonInvalid, "EndpointSlice %s: %s is no address of a host; it is left out", s.Name.Name, e.Addr)
			}
		}
	}
}

// healthCheck fills in the health-check node port, which only load-balancer
// Services with external policy Local have. It counts ready endpoints alone,
// so that load balancers turn away before a pod is gone (KEP-1669).
func (c *compiler) healthCheck() {
	if c.svc.Type != "LoadBalancer" || !c.svc.ExternalLocal || c.svc.HealthCheckPort == 0 {
		return
	}
	check := &state.HealthCheck{Port: c.svc.HealthCheckPort}
	if n := c.opts.NodePorts; len(n.CIDRs) > 0 || n.Primary || n.Localhost {
		check.Addresses = []netip.Addr{}
	}
	for _, fam := range c.opts.Families {
		check.Local = max(check.Local, c.readyHere(fam))
		for _, a := range c.opts.NodePorts.of(fam, c.self) {
			c.share.health = append(c.share.health, member{set: setHealth.in(fam), entry: state.Entry{
				Addr: a, Protocol: state.TCP, Port: check.Port,
			}})
			if check.Addresses != nil {
				check.Addresses = append(check.Addresses, a)
			}
		}
	}
	c.share.Check = check
}

// readyHere counts the distinct addresses of ready endpoints on this node.
func (c *compiler) readyHere(fam state.Family) int {
	addrs := map[netip.Addr]struct{}{}
	for _, s := range c.slices {
		if s.Family != fam {
			continue
		}
		for _, e := range s.Endpoints {
			if e.Ready && e.Node != "" && e.Node == c.self.Node && c.hasPort(s) {
				addrs[e.Addr] = struct{}{}
			}
		}
	}
	return len(addrs)
}

// hasPort tells whether a slice serves a port of the Service.
func (c *compiler) hasPort(s *state.Slice) bool {
	return slices.ContainsFunc(s.Ports, func(sp state.SlicePort) bool {
		return slices.ContainsFunc(c.svc.Ports, func(p state.ServicePort) bool { return p.Name == sp.Name })
	})
}
