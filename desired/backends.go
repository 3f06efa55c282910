package desired

import (
	"net/netip"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// backend is an endpoint at the port number that one Service port has there.
type backend struct {
	at netip.AddrPort
	*state.Endpoint
}

// pools are the endpoints of one Service port in one family, chosen for each
// traffic policy. cluster and local are never-empty answers of their policy
// where it has any; all is everything that the slices list.
type pools struct {
	all     []backend
	cluster []backend
	local   []backend
	// any says that some endpoint of the cluster could take a connection.
	any bool
}

// choose picks the endpoints of a Service port. Ready endpoints win; where
// there is none, terminating ones that still serve stand in (KEP-1669).
func choose(from map[string]*state.Slice, f state.Family, p port, self *state.Self) pools {
	all := collect(from, f, p)
	ready := keep(all, func(b backend) bool { return b.Ready })
	last := keep(all, func(b backend) bool { return b.Serving && b.Terminating })
	here := func(b backend) bool { return b.Node != "" && b.Node == self.Node }

	c := pools{all: all, any: len(ready) > 0 || len(last) > 0}
	c.cluster = nearby(ready, self)
	if len(ready) == 0 {
		c.cluster = last
	}
	c.local = keep(ready, here)
	if len(c.local) == 0 {
		c.local = keep(last, here)
	}
	return c
}

// collect lists the endpoints of a Service port once each. Where an address
// stands in two slices, one that is not terminating wins.
func collect(from map[string]*state.Slice, f state.Family, p port) []backend {
	at := map[netip.AddrPort]*state.Endpoint{}
	for _, s := range from {
		if s.Family != f {
			continue
		}
		for _, sp := range s.Ports {
			if sp.Name == p.name && sp.Protocol == p.protocol && sp.Port != 0 {
				add(at, s.Endpoints, sp.Port)
			}
		}
	}
	all := make([]backend, 0, len(at))
	for a, e := range at {
		all = append(all, backend{at: a, Endpoint: e})
	}
	slices.SortFunc(all, func(a, b backend) int { return a.at.Compare(b.at) })
	return all
}

func add(at map[netip.AddrPort]*state.Endpoint, endpoints []state.Endpoint, number uint16) {
	for i := range endpoints {
		e := &endpoints[i]
		if !isHost(e.Addr) {
			continue
		}
		key := netip.AddrPortFrom(e.Addr, number)
		if old, ok := at[key]; ok && !better(e, old) {
			continue
		}
		at[key] = e
	}
}

// isHost tells whether an address can be that of an endpoint.
func isHost(a netip.Addr) bool {
	return a.IsValid() && !a.IsUnspecified() && !a.IsMulticast() && !a.IsLoopback() && !a.IsLinkLocalUnicast() &&
		a != netip.AddrFrom4([4]byte{255, 255, 255, 255})
}

// better decides between two entries for one address, the same way whatever
// order they come in.
func better(a, b *state.Endpoint) bool {
	if a.Terminating != b.Terminating {
		return !a.Terminating
	}
	if a.Ready != b.Ready {
		return a.Ready
	}
	return a.Serving && !b.Serving
}

// nearby applies the topology hints of ready endpoints: those for this node if
// all have node hints and some name it, else likewise by zone, else all
// (KEP-2433, KEP-4444).
func nearby(ready []backend, self *state.Self) []backend {
	if mine, ok := hinted(ready, self.Node, func(b backend) []string { return b.HintNodes }); ok {
		return mine
	}
	if mine, ok := hinted(ready, self.Zone, func(b backend) []string { return b.Zones }); ok {
		return mine
	}
	return ready
}

func hinted(ready []backend, me string, hints func(backend) []string) ([]backend, bool) {
	if me == "" {
		return nil, false
	}
	var mine []backend
	for _, b := range ready {
		h := hints(b)
		if len(h) == 0 {
			return nil, false
		}
		if slices.Contains(h, me) {
			mine = append(mine, b)
		}
	}
	return mine, len(mine) > 0
}

func keep(all []backend, ok func(backend) bool) []backend {
	var kept []backend
	for _, b := range all {
		if ok(b) {
			kept = append(kept, b)
		}
	}
	return kept
}

// weights returns the real servers of a virtual server: the chosen endpoints with
// weight 1, and with weight 0 those that may still finish what they have. A
// UDP flow knows no end, so it stays only with an endpoint that still serves.
func weights(chosen, listed []backend, p state.Protocol) map[netip.AddrPort]int {
	servers := make(map[netip.AddrPort]int, len(listed))
	for _, b := range listed {
		if p != state.UDP || b.Serving {
			servers[b.at] = 0
		}
	}
	for _, b := range chosen {
		servers[b.at] = 1
	}
	return servers
}
