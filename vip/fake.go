package vip

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Fake is a kernel in memory, for tests. It refuses what the kernel refuses.
type Fake struct {
	// Fault, if set, is asked before each call and again after it, with the
	// call's name such as "addr add 10.96.0.1/32". An error makes the call
	// fail: before it without any effect, after it as if only the answer were
	// lost.
	Fault func(call string) error

	mu      sync.Mutex
	devices []*fakeDevice // by index, from 1; nil where one was deleted
}

type fakeDevice struct {
	name, kind string
	bindings   []binding
}

var _ kernel = (*Fake)(nil)

// NewFake returns a kernel without devices.
func NewFake() *Fake { return &Fake{} }

// Put makes a device of some kind hold exactly these addresses, as somebody
// else might have done: with scope global and, for IPv6, not deprecated.
func (f *Fake) Put(device, kind string, addresses ...netip.Prefix) {
	f.mu.Lock()
	defer f.mu.Unlock()
	d := &fakeDevice{name: device, kind: kind}
	for _, p := range addresses {
		d.bindings = append(d.bindings, binding{Prefix: p})
	}
	if i, old := f.named(device); old != nil {
		f.devices[i-1] = d
		return
	}
	f.devices = append(f.devices, d)
}

// Show prints the addresses of a device, in order, as "ip -o addr show" does
// without index, label and lifetimes.
func (f *Fake) Show(device string) string {
	f.mu.Lock()
	defer f.mu.Unlock()
	_, d := f.named(device)
	if d == nil {
		return fmt.Sprintf("Device %q does not exist.\n", device)
	}
	var b strings.Builder
	ordered := slices.SortedFunc(slices.Values(d.bindings), func(x, y binding) int { return x.Addr().Compare(y.Addr()) })
	for _, x := range ordered {
		fmt.Fprintf(&b, "%s %s\n", device, x.show())
	}
	return b.String()
}

// show returns a binding as "ip addr show" prints it.
func (b binding) show() string {
	family, scope, flags := "inet", "global", ""
	switch {
	case b.Host:
		scope = "host"
	case b.Addr().IsLinkLocalUnicast():
		scope = "link"
	}
	if !b.Addr().Is4() {
		family = "inet6"
	}
	if b.Deprecated {
		flags = " nodad deprecated noprefixroute"
	}
	return fmt.Sprintf("%s %s scope %s%s", family, b.Prefix, scope, flags)
}

// Delete deletes a device with its addresses, as "ip link del" does.
func (f *Fake) Delete(device string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if index, d := f.named(device); d != nil {
		f.devices[index-1] = nil
	}
}

// call runs one call between its faults.
func (f *Fake) call(name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
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

// named returns a device with its index, 0 and nil if there is none.
func (f *Fake) named(name string) (int, *fakeDevice) {
	for i, d := range f.devices {
		if d != nil && d.name == name {
			return i + 1, d
		}
	}
	return 0, nil
}

// at runs a call on the device of an index.
func (f *Fake) at(index int, call string, do func(*fakeDevice) error) error {
	return f.call(call, func() error {
		if index < 1 || index > len(f.devices) || f.devices[index-1] == nil {
			return unix.ENODEV
		}
		return do(f.devices[index-1])
	})
}

func (f *Fake) close() {}

func (f *Fake) find(device string) (index int, kind string, err error) {
	err = f.call("link show "+device, func() error {
		i, d := f.named(device)
		if d != nil {
			index, kind = i, d.kind
		}
		return nil
	})
	return index, kind, err
}

func (f *Fake) create(device string) error {
	return f.call("link add "+device, func() error {
		if _, d := f.named(device); d != nil {
			return unix.EEXIST
		}
		f.devices = append(f.devices, &fakeDevice{name: device, kind: "dummy"})
		return nil
	})
}

func (f *Fake) remove(index int) error {
	return f.at(index, "link del", func(*fakeDevice) error {
		f.devices[index-1] = nil
		return nil
	})
}

func (f *Fake) list(index int) (found []binding, err error) {
	err = f.at(index, "addr show", func(d *fakeDevice) error {
		found = slices.Clone(d.bindings)
		return nil
	})
	return found, err
}

func (f *Fake) add(index int, b binding) error {
	return f.at(index, "addr add "+b.String(), func(d *fakeDevice) error {
		if d.holds(b) >= 0 {
			return unix.EEXIST
		}
		d.bindings = append(d.bindings, b)
		return nil
	})
}

func (f *Fake) replace(index int, b binding) error {
	return f.at(index, "addr replace "+b.String(), func(d *fakeDevice) error {
		if i := d.holds(b); i >= 0 {
			d.bindings[i] = b
			return nil
		}
		d.bindings = append(d.bindings, b)
		return nil
	})
}

func (f *Fake) del(index int, b binding) error {
	return f.at(index, "addr del "+b.String(), func(d *fakeDevice) error {
		i := slices.IndexFunc(d.bindings, func(x binding) bool { return x.Prefix == b.Prefix })
		if i < 0 {
			return unix.EADDRNOTAVAIL
		}
		d.bindings = slices.Delete(d.bindings, i, i+1)
		return nil
	})
}

// holds returns the place of the binding that keeps another of the same
// address from being made, -1 if there is none: in IPv4 that of the same
// network, in IPv6 that of the same address.
func (d *fakeDevice) holds(b binding) int {
	return slices.IndexFunc(d.bindings, func(x binding) bool {
		return x.Addr() == b.Addr() && (!b.Addr().Is4() || x.Bits() == b.Bits())
	})
}
