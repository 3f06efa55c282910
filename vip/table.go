// Package vip binds Service addresses to a dummy device, so that the kernel
// takes packets to them for its own and hands them to IPVS. It never decides
// which addresses those are and touches no other device.
package vip

import (
	"context"
	"errors"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// DefaultDevice is the name under which other software of a node knows such a
// device and leaves it alone.
const DefaultDevice = "kube-ipvs0"

// Table is the layer of addresses on one device. The device stays down: a
// dummy needs no carrier to make an address local. Its methods are for one
// goroutine.
type Table struct {
	kernel kernel
	device string
	// index of the device, 0 if it does not exist.
	index     int
	addresses map[netip.Addr]struct{}
	bindings  map[netip.Addr]binding
}

var _ state.Layer = (*Table)(nil)

// Open returns a Table over a device in the network namespace of the calling
// thread. The device need not exist.
func Open(device string) (*Table, error) {
	k, err := open()
	if err != nil {
		return nil, fmt.Errorf("open the kernel's table of addresses: %w", err)
	}
	return New(device, k), nil
}

// New returns a Table over a device of a kernel, such as a Fake.
func New(device string, k kernel) *Table {
	t := &Table{kernel: k, device: device}
	t.believe(0, nil)
	return t
}

// Close releases the Table's socket. The device stays.
func (t *Table) Close() { t.kernel.close() }

// Addresses returns the addresses that we believe the device to hold. The
// caller must not change them.
func (t *Table) Addresses() map[netip.Addr]struct{} { return t.addresses }

// Read learns whether the device exists and what it holds. After an error the
// belief is as before.
func (t *Table) Read(ctx context.Context) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	index, err := t.find()
	if err != nil {
		return err
	}
	if index == 0 {
		t.believe(0, nil)
		return nil
	}
	bindings, err := t.kernel.list(index)
	if err != nil {
		return fmt.Errorf("list the addresses of device %s: %w", t.device, err)
	}
	t.believe(index, bindings)
	return nil
}

// Ensure creates the device and binds the addresses that are missing. An IPv4
// address that is bound in another way is left as it is, an IPv6 address is
// edited in place.
func (t *Table) Ensure(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	ops := planEnsure(t.device, want, t.bindings, change)
	if t.index != 0 || len(ops) == 0 && !change.All {
		return t.run(ctx, ops)
	}
	create, err := t.create()
	if err != nil {
		return create, err
	}
	done, err := t.run(ctx, ops)
	return append(create, done...), err
}

// Prune unbinds the addresses that are not wanted. The device stays.
func (t *Table) Prune(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	return t.run(ctx, planPrune(t.device, want, t.bindings, change))
}

// Remove deletes the device and with it all its addresses.
func (t *Table) Remove(ctx context.Context) ([]state.Op, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	index, err := t.find()
	if err != nil || index == 0 {
		return nil, err
	}
	if err := t.kernel.remove(index); err != nil && !errors.Is(err, unix.ENODEV) {
		return nil, fmt.Errorf("delete device %s: %w", t.device, explain(err))
	}
	t.believe(0, nil)
	return []state.Op{op{verb: verbRemove, device: t.device}}, nil
}

// Probe says whether the device exists or can be created, and leaves things
// as they are. The error says what is missing and what to do.
func (t *Table) Probe() error {
	index, err := t.find()
	if err != nil || index != 0 {
		return err
	}
	if err := t.kernel.create(t.device); err != nil {
		return fmt.Errorf("create device %s: %w", t.device, explain(err))
	}
	if index, err = t.find(); err != nil || index == 0 {
		return err
	}
	if err := t.kernel.remove(index); err != nil {
		return fmt.Errorf("delete device %s again: %w", t.device, explain(err))
	}
	return nil
}

// find returns the index of the device, 0 if there is none. A device of the
// name that is not a dummy belongs to somebody else and is an error.
func (t *Table) find() (int, error) {
	index, kind, err := t.kernel.find(t.device)
	if err != nil {
		return 0, fmt.Errorf("look up device %s: %w", t.device, explain(err))
	}
	if index != 0 && kind != "dummy" {
		return 0, fmt.Errorf("device %s is of type %q, not dummy: rename or delete it, or choose another name for the proxy's device", t.device, kind)
	}
	return index, nil
}

// create makes the device. One that has been made since we looked may hold
// addresses, which the next Read finds.
func (t *Table) create() ([]state.Op, error) {
	done := []state.Op{op{verb: verbCreate, device: t.device}}
	err := t.kernel.create(t.device)
	if errors.Is(err, unix.EEXIST) {
		done, err = nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("create device %s: %w", t.device, explain(err))
	}
	index, err := t.find()
	if err == nil && index == 0 {
		err = fmt.Errorf("device %s has vanished: %w", t.device, unix.ENODEV)
	}
	if err != nil {
		return done, err
	}
	t.believe(index, nil)
	return done, nil
}

// believe replaces the belief.
func (t *Table) believe(index int, bindings []binding) {
	t.index = index
	t.addresses, t.bindings = map[netip.Addr]struct{}{}, map[netip.Addr]binding{}
	for _, b := range bindings {
		if ours(b.Addr()) {
			t.note(b)
		}
	}
}

// note writes a binding into the belief.
func (t *Table) note(b binding) {
	t.addresses[b.Addr()], t.bindings[b.Addr()] = struct{}{}, b
}

// forget takes an address out of the belief.
func (t *Table) forget(a netip.Addr) {
	delete(t.addresses, a)
	delete(t.bindings, a)
}
