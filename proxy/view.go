package proxy

import (
	"net/netip"
	"reflect"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// view is the cluster and this node as far as the sources have told.
type view struct {
	node      string
	cluster   *state.Cluster
	owners    map[state.Name]state.Name // of slices: the Service that each belongs to
	addresses []netip.Addr
	self      *state.Self
	seen      bool // this node's Node object was there once
}

func newView(node string) *view {
	return &view{
		node: node, cluster: state.NewCluster(), owners: map[state.Name]state.Name{},
		self: &state.Self{Node: node, Foreign: map[netip.Addr]string{}},
	}
}

// absorb takes over a batch. It returns the Services that it touches; moved
// says that this node's own view of itself changed, so that all are touched.
func (v *view) absorb(b batch) (touched map[state.Name]struct{}, moved bool) {
	touched = map[state.Name]struct{}{}
	for name, s := range b.services {
		if v.setService(name, s) {
			touched[name] = struct{}{}
		}
	}
	for name, s := range b.slices {
		v.setSlice(name, s, touched)
	}
	news := b.moved
	for name, n := range b.nodes {
		news = v.setNode(name, n) || news
	}
	if b.moved {
		v.addresses = b.addresses
	}
	if !news {
		return touched, false
	}
	was := v.self
	v.self = v.look()
	return touched, !reflect.DeepEqual(was, v.self)
}

// setService files a Service and tells whether that is news: a resync hands
// over what is known already.
func (v *view) setService(name state.Name, s *state.Service) bool {
	was := v.cluster.Services[name]
	if s == nil {
		delete(v.cluster.Services, name)
		return was != nil
	}
	v.cluster.Services[name] = s
	return !reflect.DeepEqual(was, s)
}

// setNode files a Node and tells whether that is news: its heartbeats are not.
func (v *view) setNode(name string, n *state.ClusterNode) bool {
	was := v.cluster.Nodes[name]
	if n == nil {
		delete(v.cluster.Nodes, name)
		return was != nil
	}
	v.cluster.Nodes[name] = n
	v.seen = v.seen || name == v.node
	return !reflect.DeepEqual(was, n)
}

// setSlice files a slice under its Service, which its label may change.
func (v *view) setSlice(name state.Name, s *state.Slice, touched map[state.Name]struct{}) {
	if owner, ok := v.owners[name]; ok {
		if s != nil && reflect.DeepEqual(v.cluster.Slices[owner][name.Name], s) {
			return
		}
		touched[owner] = struct{}{}
		delete(v.cluster.Slices[owner], name.Name)
		if len(v.cluster.Slices[owner]) == 0 {
			delete(v.cluster.Slices, owner)
		}
		delete(v.owners, name)
	}
	if s == nil {
		return
	}
	touched[s.Service] = struct{}{}
	v.owners[name] = s.Service
	if v.cluster.Slices[s.Service] == nil {
		v.cluster.Slices[s.Service] = map[string]*state.Slice{}
	}
	v.cluster.Slices[s.Service][name.Name] = s
}

// look works out what this node knows of itself.
func (v *view) look() *state.Self {
	self := &state.Self{Node: v.node, Addresses: v.addresses, Foreign: map[netip.Addr]string{}}
	for name, n := range v.cluster.Nodes {
		for _, a := range n.Addresses {
			if other, taken := self.Foreign[a]; !taken || name < other {
				self.Foreign[a] = name
			}
		}
	}
	if own := v.cluster.Nodes[v.node]; own != nil {
		self.Zone, self.NodeIPs, self.PodCIDRs = own.Zone, own.Addresses, own.PodCIDRs
	}
	return self
}

// eligible tells whether load balancers may send to this node: its Node object
// has not gone and is not on its way out (KEP-3836). A node that never had one,
// as with manifests alone, is eligible.
func (v *view) eligible() bool {
	own := v.cluster.Nodes[v.node]
	if own == nil {
		return !v.seen
	}
	return own.Eligible
}
