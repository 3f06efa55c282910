// Package conntrack deletes connection-tracking entries of UDP virtual servers
// that lead to a real server which is gone. A busy UDP flow never expires by
// itself and would send into nothing for ever. It deletes nothing else: no TCP
// or SCTP entry, and none whose original destination is not a virtual server's
// address and port.
package conntrack

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// errInterrupted says that a dump may lack entries, because the kernel's table
// changed under it.
var errInterrupted = errors.New("the dump was interrupted")

// dumps is how often a dump is tried before what was seen has to do.
const dumps = 5

// Table deletes stale entries. It holds no state between calls.
type Table struct{ kernel kernel }

// New returns a Table over a kernel: a Fake, or the real one that Open uses.
func New(k kernel) *Table { return &Table{kernel: k} }

// Open returns a Table over the running kernel's entries, in the network
// namespace of the calling thread.
func Open() *Table { return New(netfilter{}) }

// Clean deletes the stale entries of the UDP virtual servers that the change
// names; with All, of all in want.Flows. An entry is stale if its reply does
// not come from one of its virtual server's want.Flows. Of a virtual server
// that want.Flows lacks every entry is stale. The real servers must be changed
// in IPVS before: an entry deleted too early comes back as it was.
//
// If the change names no UDP virtual server the kernel is not asked. Clean goes
// on after an error and returns what it deleted and all errors.
func (t *Table) Clean(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	targets := planTargets(want, change)
	var (
		ops  []state.Op
		errs []error
	)
	for _, f := range []state.Family{state.IPv4, state.IPv6} {
		done, err := t.clean(ctx, f, targets.of(f))
		ops = append(ops, done...)
		errs = append(errs, err)
	}
	return ops, errors.Join(errs...)
}

// clean deletes the stale entries of targets that are all of one family.
func (t *Table) clean(ctx context.Context, f state.Family, targets targets) ([]state.Op, error) {
	if len(targets) == 0 {
		return nil, nil
	}
	stale, err := t.find(ctx, f, targets)
	if err != nil {
		return nil, fmt.Errorf("listing the %s conntrack entries: %w", f, err)
	}
	var (
		ops  []state.Op
		errs []error
	)
	for _, flow := range stale {
		if err := t.kernel.delete(ctx, flow); err != nil {
			errs = append(errs, fmt.Errorf("deleting the conntrack entry %s: %w", flow, err))
			continue
		}
		ops = append(ops, remove{flow})
	}
	return ops, errors.Join(errs...)
}

// find returns the stale entries, in a fixed order. Only these are kept in
// memory. After an interrupted dump it tries again and unites what it saw.
func (t *Table) find(ctx context.Context, f state.Family, targets targets) ([]Flow, error) {
	stale := map[Flow]struct{}{}
	var err error
	for range dumps {
		err = t.kernel.dump(ctx, f, targets.filter(), func(flow Flow) {
			if targets.stale(flow) {
				stale[flow] = struct{}{}
			}
		})
		if !errors.Is(err, errInterrupted) {
			break
		}
	}
	if err != nil && !errors.Is(err, errInterrupted) {
		return nil, err
	}
	return slices.SortedFunc(maps.Keys(stale), Flow.compare), nil
}
