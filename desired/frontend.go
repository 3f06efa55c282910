package desired

import (
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// class is a kind of way in to a Service.
type class int

// The classes, the strongest claim on an address first: what the cluster
// itself hands out goes before what anybody may write into a Service.
const (
	clusterIP class = iota
	loadBalancer
	nodePort
	externalIP
)

// String returns the class as messages name it.
func (c class) String() string {
	return [...]string{"cluster IP", "load-balancer address", "node port", "external IP"}[c]
}

// port is a Service port that can be programmed.
type port struct {
	name     string
	protocol state.Protocol
	number   uint16
	nodePort uint16
}

// Frontend is one way in to a Service port: an address, a protocol and a
// port, with everything that hangs on it. A key belongs to one Service only.
type Frontend struct {
	Key     state.ServerKey
	Service state.Name
	Port    string
	class   class
	// server is the virtual server at the key.
	server *state.VirtualServer
	// bind says that the address goes on the proxy's device.
	bind bool
	// refuse says that nobody could take a connection, drop that nobody on
	// this node may although there is somebody elsewhere.
	refuse, drop bool
	// local says that the traffic policy is Local.
	local bool
	// restricted says that only sources in ranges are let in.
	restricted bool
	ranges     []netip.Prefix
	// mark leads pods of this node and the node itself past policy Local, to
	// the virtual server shortcut. 0 means no such way.
	mark     uint32
	shortcut *state.VirtualServer
	// live are the real servers whose UDP flows are good; nil unless UDP.
	live map[netip.AddrPort]struct{}
	// retired says that no Service claims the key any more: open connections
	// end, new ones are refused.
	retired bool
}

// member is an entry of one of our sets.
type member struct {
	set   string
	entry state.Entry
	mark  uint32
}

// members returns the set entries of a frontend.
func (f *Frontend) members() []member {
	if f.Key.Mark != 0 {
		return nil
	}
	fam := f.Key.Family()
	key := state.Entry{Addr: f.Key.Addr, Protocol: f.Key.Protocol, Port: f.Key.Port}
	m := []member{{set: setService.in(fam), entry: key}}
	in := func(yes bool, s set) {
		if yes {
			m = append(m, member{set: s.in(fam), entry: key})
		}
	}
	in(f.class == clusterIP && !f.retired, setCluster)
	in(f.class != clusterIP && !f.local && !f.retired, setExternal)
	in(f.refuse, setRefuse)
	in(f.drop, setDrop)
	in(f.restricted, setRanged)
	for _, r := range f.ranges {
		e := key
		e.Net = r
		m = append(m, member{set: setRange.in(fam), entry: e})
	}
	if f.mark != 0 {
		m = append(m, member{set: setShortcut.in(fam), entry: key, mark: f.mark})
	}
	return m
}

// frontends lists the ways in to one Service port in one family.
func (c *compiler) frontends(p port, fam state.Family) []*Frontend {
	pools := choose(c.slices, fam, p, c.self)
	c.count(p, fam, pools)
	internal := c.server(pools, p, c.svc.InternalLocal)
	var fronts []*Frontend
	for _, a := range c.clusterIPs[fam] {
		fronts = append(fronts, c.frontend(p, a, p.number, clusterIP, internal))
	}
	external := c.external(pools, p, fam)
	for _, a := range c.ingress[fam] {
		f := c.frontend(p, a, p.number, loadBalancer, external)
		c.restrict(f)
		fronts = append(fronts, f)
	}
	for _, a := range c.externalIPs[fam] {
		fronts = append(fronts, c.frontend(p, a, p.number, externalIP, external))
	}
	if p.nodePort != 0 {
		for _, a := range c.opts.NodePorts.of(fam, c.self) {
			fronts = append(fronts, c.frontend(p, a, p.nodePort, nodePort, external))
		}
	}
	return fronts
}

// served is what all frontends of one class of a Service port share.
type served struct {
	server       *state.VirtualServer
	live         map[netip.AddrPort]struct{}
	refuse, drop bool
	local        bool
	mark         uint32
	shortcut     *state.VirtualServer
}

// server picks the pool of a policy.
func (c *compiler) server(pools pools, p port, local bool) served {
	chosen := pools.cluster
	if local {
		chosen = pools.local
	}
	s := served{
		local:  local,
		refuse: !pools.any,
		drop:   pools.any && len(chosen) == 0,
		server: &state.VirtualServer{
			Scheduler: c.scheduler.Name,
			Flags:     c.scheduler.Flags,
			Real:      weights(chosen, pools.all, p.protocol),
			Datagrams: p.protocol == state.UDP,
		},
	}
	if c.svc.AffinitySeconds > 0 {
		s.server.Flags |= state.Persistent
		s.server.Timeout = c.svc.AffinitySeconds
	}
	if p.protocol == state.UDP {
		s.live = serving(pools.all)
	}
	return s
}

// external adds to the external policy's pool the way past it for callers of
// the cluster. With policy Local they reach every endpoint, as if they had
// gone out of the cluster and come back in. The kernel translates no port for
// a mark with persistence, so a Service with ClientIP affinity gets the
// source-hashing scheduler there, which also keeps a client on one endpoint.
func (c *compiler) external(pools pools, p port, fam state.Family) served {
	s := c.server(pools, p, c.svc.ExternalLocal)
	if !c.svc.ExternalLocal || !c.reachable(p, fam) {
		return s
	}
	s.mark = c.mark(p)
	s.shortcut = &state.VirtualServer{
		Scheduler: c.scheduler.Name,
		Flags:     c.scheduler.Flags,
		Real:      weights(pools.cluster, pools.all, p.protocol),
		Datagrams: p.protocol == state.UDP,
	}
	if c.svc.AffinitySeconds > 0 {
		sticky := c.sticky()
		s.shortcut.Scheduler, s.shortcut.Flags = sticky.Name, sticky.Flags
	}
	return s
}

// sticky is a scheduler that keeps a client on one endpoint: mh, which moves few
// clients when endpoints change, or sh where the kernel has no mh. Where it has
// neither, clients are not kept, and the Service's owner is told.
func (c *compiler) sticky() Scheduler {
	for _, name := range []string{"mh", "sh"} {
		if !c.opts.Missing[name] {
			return Scheduler{Name: name, Flags: state.Sched1}
		}
	}
	c.complain(ReasonScheduler, "this node's kernel has neither scheduler mh nor sh; callers of the cluster find no session affinity at external addresses")
	return c.opts.Scheduler
}

func serving(all []backend) map[netip.AddrPort]struct{} {
	live := map[netip.AddrPort]struct{}{}
	for _, b := range all {
		if b.Serving {
			live[b.at] = struct{}{}
		}
	}
	return live
}

func (c *compiler) frontend(p port, a netip.Addr, number uint16, cl class, s served) *Frontend {
	return &Frontend{
		Key:     state.ServerKey{Addr: a, Protocol: p.protocol, Port: number},
		Service: c.svc.Name,
		Port:    p.name,
		class:   cl,
		server:  s.server,
		live:    s.live,
		bind:    cl != nodePort && !c.owns(a),
		refuse:  s.refuse, drop: s.drop, local: s.local,
		mark: s.mark, shortcut: s.shortcut,
	}
}

// restrict applies the Service's source ranges. Without any endpoint the
// refusal comes first, as in kube-proxy's iptables mode. The node's own calls
// carry the load balancer's address as their source, so it stands for the
// node where one of the node's addresses is in a range.
func (c *compiler) restrict(f *Frontend) {
	ranges, restricted := c.ranges[f.Key.Family()]
	if !restricted || f.refuse {
		return
	}
	f.restricted = true
	f.ranges = ranges
	if c.contains(ranges) {
		own := netip.PrefixFrom(f.Key.Addr, f.Key.Addr.BitLen())
		f.ranges = append(append([]netip.Prefix(nil), ranges...), own)
	}
}
