package watch

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink"
)

// rtnetlink is the kernel's side of an address watch.
type rtnetlink struct{ device string }

// listAttempts is how often a list is tried that a change made inconsistent.
const listAttempts = 5

// eventBuffer is the size in bytes of a subscription's receive buffer, enough
// for the events of binding some ten thousand addresses in one go.
const eventBuffer = 8 << 20

func (r *rtnetlink) list() ([]netip.Addr, error) {
	for range listAttempts {
		addrs, err := r.listOnce()
		if !errors.Is(err, netlink.ErrDumpInterrupted) {
			return addrs, err
		}
	}
	return nil, fmt.Errorf("the addresses changed during each of %d attempts", listAttempts)
}

// listOnce asks for the own device's index before and after, so that its
// addresses cannot pass for the node's while it is made or replaced.
func (r *rtnetlink) listOnce() ([]netip.Addr, error) {
	own, err := deviceIndex(r.device)
	if err != nil {
		return nil, err
	}
	all, err := netlink.AddrList(nil, netlink.FAMILY_ALL)
	if err != nil {
		return nil, err
	}
	after, err := deviceIndex(r.device)
	if err != nil {
		return nil, err
	}
	if after != own {
		return nil, netlink.ErrDumpInterrupted
	}
	var out []netip.Addr
	for _, a := range all {
		if addr, ok := netip.AddrFromSlice(a.IP); ok && (own == 0 || a.LinkIndex != own) {
			out = append(out, addr.Unmap())
		}
	}
	return out, nil
}

// deviceIndex returns 0 if there is no such device.
func deviceIndex(name string) (int, error) {
	link, err := netlink.LinkByName(name)
	if missing := (netlink.LinkNotFoundError{}); errors.As(err, &missing) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("looking for the device %s: %w", name, err)
	}
	return link.Attrs().Index, nil
}

func (r *rtnetlink) subscribe() (<-chan bool, func(), error) {
	done := make(chan struct{})
	addrs := make(chan netlink.AddrUpdate)
	links := make(chan netlink.LinkUpdate)
	// The library ends a subscription after a receive error and closes the
	// channel, which is all that is needed here.
	ignore := func(error) {}
	err := netlink.AddrSubscribeWithOptions(addrs, done, netlink.AddrSubscribeOptions{
		ErrorCallback: ignore, ReceiveBufferSize: eventBuffer, ReceiveBufferForceSize: true,
	})
	if err != nil {
		close(done)
		return nil, nil, fmt.Errorf("subscribing to address events: %w", err)
	}
	err = netlink.LinkSubscribeWithOptions(links, done, netlink.LinkSubscribeOptions{ErrorCallback: ignore})
	if err != nil {
		close(done)
		go drain(addrs)
		return nil, nil, fmt.Errorf("subscribing to device events: %w", err)
	}
	own, err := deviceIndex(r.device)
	if err != nil {
		close(done)
		go drain(addrs)
		go drain(links)
		return nil, nil, err
	}
	events := make(chan bool)
	go r.merge(own, addrs, links, events, done)
	return events, func() { close(done) }, nil
}

// merge turns what the kernel tells into events until a subscription breaks or
// is stopped. Devices other than the own one do not count by themselves: when
// one of them goes, the kernel also tells of each of its addresses.
func (r *rtnetlink) merge(own int, addrs chan netlink.AddrUpdate, links chan netlink.LinkUpdate, events chan<- bool, done <-chan struct{}) {
	defer func() {
		close(events)
		go drain(addrs)
		go drain(links)
	}()
	for {
		var mine bool
		select {
		case a, ok := <-addrs:
			if !ok {
				return
			}
			mine = own != 0 && a.LinkIndex == own
		case l, ok := <-links:
			if !ok {
				return
			}
			index := int(l.Index)
			if l.Attrs().Name == r.device {
				own = index
			} else if own == 0 || index != own {
				continue
			}
			mine = true
		case <-done:
			return
		}
		select {
		case events <- mine:
		case <-done:
			return
		}
	}
}

// drain lets the library's goroutine end.
func drain[T any](c <-chan T) {
	for range c {
	}
}
