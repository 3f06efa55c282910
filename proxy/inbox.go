package proxy

import (
	"net/netip"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// inbox takes what the sources see, from any goroutine, and hands it to the
// loop. Several changes of one object become one.
type inbox struct {
	signal chan struct{}

	mu     sync.Mutex
	waits  batch
	synced bool
}

// batch is what has come in since the loop last looked. A nil object means
// that it is gone.
type batch struct {
	services  map[state.Name]*state.Service
	slices    map[state.Name]*state.Slice
	nodes     map[string]*state.ClusterNode
	addresses []netip.Addr
	moved     bool // addresses holds a new list
	disturbed bool
}

func newBatch() batch {
	return batch{
		services: map[state.Name]*state.Service{},
		slices:   map[state.Name]*state.Slice{},
		nodes:    map[string]*state.ClusterNode{},
	}
}

func newInbox() *inbox { return &inbox{signal: make(chan struct{}, 1), waits: newBatch()} }

// put changes the waiting batch and wakes the loop.
func (i *inbox) put(change func(*batch)) {
	i.mu.Lock()
	change(&i.waits)
	i.mu.Unlock()
	i.wake()
}

func (i *inbox) wake() {
	select {
	case i.signal <- struct{}{}:
	default:
	}
}

// take returns what waits and whether the sources have handed over everything
// that was there at the start.
func (i *inbox) take() (batch, bool) {
	i.mu.Lock()
	defer i.mu.Unlock()
	b := i.waits
	i.waits = newBatch()
	return b, i.synced
}

func (i *inbox) SetService(s *state.Service) { i.put(func(b *batch) { b.services[s.Name] = s }) }

func (i *inbox) DeleteService(n state.Name) { i.put(func(b *batch) { b.services[n] = nil }) }

func (i *inbox) SetSlice(s *state.Slice) { i.put(func(b *batch) { b.slices[s.Name] = s }) }

func (i *inbox) DeleteSlice(n state.Name) { i.put(func(b *batch) { b.slices[n] = nil }) }

func (i *inbox) SetNode(n *state.ClusterNode) { i.put(func(b *batch) { b.nodes[n.Name] = n }) }

func (i *inbox) DeleteNode(name string) { i.put(func(b *batch) { b.nodes[name] = nil }) }

func (i *inbox) SetAddresses(a []netip.Addr) {
	i.put(func(b *batch) { b.addresses, b.moved = a, true })
}

func (i *inbox) Disturbed() { i.put(func(b *batch) { b.disturbed = true }) }

func (i *inbox) Synced() {
	i.mu.Lock()
	i.synced = true
	i.mu.Unlock()
	i.wake()
}
