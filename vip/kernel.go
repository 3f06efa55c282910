package vip

import (
	"errors"
	"fmt"
	"math"
	"net"
	"net/netip"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// kernel is what a Table asks of the kernel. Errors wrap the kernel's errno:
// EEXIST for what is there, EADDRNOTAVAIL and ENODEV for what is not.
type kernel interface {
	// find returns the index and kind of a device, index 0 if there is none.
	find(device string) (index int, kind string, err error)
	create(device string) error
	remove(index int) error
	list(index int) ([]binding, error)
	add(index int, b binding) error
	replace(index int, b binding) error
	del(index int, b binding) error
	close()
}

const (
	// timeout for the kernel's answer, which it writes before the request has
	// been sent.
	timeout = 5 * time.Second
	// attempts to get a list that nothing disturbs.
	attempts = 5
	// forever is the lifetime that does not end, or on a machine whose int is
	// too small for it the longest one there is.
	forever = int(^uint(0) >> 1 & math.MaxUint32)
)

// linux is the real kernel.
type linux struct{ handle *netlink.Handle }

// open opens a socket in the network namespace of the calling thread.
func open() (*linux, error) {
	h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, err
	}
	return &linux{h}, h.SetSocketTimeout(timeout)
}

func (l *linux) close() { l.handle.Close() }

func (l *linux) find(device string) (int, string, error) {
	var link netlink.Link
	err := undisturbed(func() (err error) {
		link, err = l.handle.LinkByName(device)
		return err
	})
	if _, none := errors.AsType[netlink.LinkNotFoundError](err); none {
		return 0, "", nil
	}
	if err != nil {
		return 0, "", err
	}
	return link.Attrs().Index, link.Type(), nil
}

func (l *linux) create(device string) error {
	attrs := netlink.NewLinkAttrs()
	attrs.Name = device
	return l.handle.LinkAdd(&netlink.Dummy{LinkAttrs: attrs})
}

func (l *linux) remove(index int) error { return l.handle.LinkDel(at(index)) }

func (l *linux) list(index int) ([]binding, error) {
	var found []netlink.Addr
	err := undisturbed(func() (err error) {
		found, err = l.handle.AddrList(at(index), netlink.FAMILY_ALL)
		return err
	})
	if err != nil {
		return nil, err
	}
	bindings := make([]binding, len(found))
	for i, a := range found {
		if bindings[i], err = parse(a); err != nil {
			return nil, err
		}
	}
	return bindings, nil
}

func (l *linux) add(index int, b binding) error {
	return l.handle.AddrAdd(at(index), request(b))
}

func (l *linux) replace(index int, b binding) error {
	return l.handle.AddrReplace(at(index), request(b))
}

// del unbinds the address of exactly this prefix length.
func (l *linux) del(index int, b binding) error {
	a := request(b)
	a.Flags, a.ValidLft = 0, 0
	return l.handle.AddrDel(at(index), a)
}

// at stands for the device of an index.
func at(index int) netlink.Link {
	return &netlink.Dummy{LinkAttrs: netlink.LinkAttrs{Index: index}}
}

// request returns a binding as the library takes it. A device that is down
// never finishes the search for duplicates of an IPv6 address, hence nodad.
func request(b binding) *netlink.Addr {
	addr := b.Addr()
	a := &netlink.Addr{IPNet: &net.IPNet{
		IP:   addr.AsSlice(),
		Mask: net.CIDRMask(b.Bits(), addr.BitLen()),
	}}
	if b.Host {
		a.Scope = unix.RT_SCOPE_HOST
	}
	if b.Deprecated {
		a.Flags = unix.IFA_F_NODAD | unix.IFA_F_NOPREFIXROUTE
		a.ValidLft, a.PreferedLft = forever, 0
	}
	return a
}

// parse reads an address of the kernel.
func parse(a netlink.Addr) (binding, error) {
	addr, ok := netip.AddrFromSlice(a.IP)
	if !ok {
		return binding{}, fmt.Errorf("the kernel lists a malformed address %v", a)
	}
	bits, _ := a.Mask.Size()
	v4 := addr.Is4()
	return binding{
		Prefix:     netip.PrefixFrom(addr, bits),
		Host:       v4 && a.Scope == unix.RT_SCOPE_HOST,
		Deprecated: !v4 && a.Flags&unix.IFA_F_DEPRECATED != 0,
	}, nil
}

// undisturbed asks again while the kernel says that a list is incomplete.
func undisturbed(ask func() error) (err error) {
	for range attempts {
		if err = ask(); !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return err
}
