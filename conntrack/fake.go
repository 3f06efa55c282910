package conntrack

import (
	"context"
	"slices"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Fake is the kernel's connection tracking in memory, for tests.
type Fake struct {
	// Fault, if set, is asked before each call and again after it, with the
	// call as a command. An error makes the call fail: before it without any
	// effect, after it as if only the answer were lost.
	Fault func(call string) error
	// Interrupt is how many of the next dumps stop half way.
	Interrupt int
	// Dumps counts the dumps.
	Dumps int

	mu    sync.Mutex
	flows []Flow
	last  uint32
}

// NewFake returns a Fake without entries.
func NewFake() *Fake { return &Fake{} }

// Add makes an entry and gives it the next number. One with the same original
// direction and zone that is there stays, as in the kernel.
func (f *Fake) Add(flow Flow) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if slices.ContainsFunc(f.flows, flow.same) {
		return
	}
	f.last++
	flow.ID = f.last
	f.flows = append(f.flows, flow)
}

// Flows returns the entries in a fixed order.
func (f *Fake) Flows() []Flow {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.SortedFunc(slices.Values(f.flows), Flow.compare)
}

func (f *Fake) dump(ctx context.Context, family state.Family, _ filter, found func(Flow)) error {
	return f.call(ctx, "conntrack -L", func() error {
		f.Dumps++
		flows, end := f.flows, error(nil)
		if f.Interrupt > 0 {
			f.Interrupt--
			flows, end = flows[:len(flows)/2], errInterrupted
		}
		for _, flow := range flows {
			if state.FamilyOf(flow.Destination.Addr()) == family {
				found(flow)
			}
		}
		return end
	})
}

func (f *Fake) delete(ctx context.Context, flow Flow) error {
	return f.call(ctx, remove{flow}.String(), func() error {
		f.flows = slices.DeleteFunc(f.flows, func(o Flow) bool {
			return flow.same(o) && (flow.ID == 0 || flow.ID == o.ID)
		})
		return nil
	})
}

// call runs one call between its faults.
func (f *Fake) call(ctx context.Context, name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := ctx.Err(); err != nil {
		return err
	}
	if f.Fault == nil {
		return do()
	}
	if err := f.Fault(name); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return f.Fault(name)
}

// same reports whether two entries have the same key in the kernel's table.
func (f Flow) same(o Flow) bool {
	return f.Protocol == o.Protocol && f.Source == o.Source && f.Destination == o.Destination && f.Zone == o.Zone
}
