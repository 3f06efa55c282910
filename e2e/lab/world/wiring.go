package world

import (
	"errors"
	"fmt"
	"net"
	"net/netip"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
)

// wire is one thing to set up in a host's network. Starting ip(8) for each would cost more than all the rest.
type wire func(*netlink.Handle) error

// setUp does all of it in a host.
func setUp(space *netns.Space, wires []wire) error {
	return space.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		for _, w := range wires {
			if err := w(h); err != nil {
				return err
			}
		}
		return nil
	})
}

// cable connects two devices in two hosts.
func cable(a *netns.Space, device string, mac net.HardwareAddr, b *netns.Space, peer string, peerMAC net.HardwareAddr) wire {
	return func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name, attrs.HardwareAddr, attrs.Namespace = device, mac, netlink.NsFd(a.NetFD())
		veth := netlink.NewVeth(attrs)
		veth.PeerName, veth.PeerHardwareAddr, veth.PeerNamespace = peer, peerMAC, netlink.NsFd(b.NetFD())
		return wrap(h.LinkAdd(veth), "link add %s in %s to %s in %s", device, a.Name, peer, b.Name)
	}
}

func onLink(device string, change func(*netlink.Handle, netlink.Link) error) wire {
	return func(h *netlink.Handle) error {
		link, err := h.LinkByName(device)
		if err != nil {
			return wrap(err, "link %s", device)
		}
		return wrap(change(h, link), "link %s", device)
	}
}

func up(device string) wire {
	return onLink(device, func(h *netlink.Handle, l netlink.Link) error { return h.LinkSetUp(l) })
}

// bridge makes a bridge of ports. It forwards at once and floods multicast, so that neighbour discovery needs no querier.
func bridge(name string, ports ...string) []wire {
	add := func(h *netlink.Handle) error {
		attrs := netlink.NewLinkAttrs()
		attrs.Name = name
		snooping := false
		return wrap(h.LinkAdd(&netlink.Bridge{LinkAttrs: attrs, MulticastSnooping: &snooping}), "link add %s", name)
	}
	wires := []wire{add, up(name)}
	for _, port := range ports {
		wires = append(wires, onLink(port, func(h *netlink.Handle, l netlink.Link) error {
			master, err := h.LinkByName(name)
			return errors.Join(err, h.LinkSetMaster(l, master))
		}))
	}
	return wires
}

// address gives a device an address that is usable at once.
func address(prefix netip.Prefix, device string) wire {
	return onLink(device, func(h *netlink.Handle, l netlink.Link) error {
		addr := &netlink.Addr{IPNet: ipNet(prefix)}
		if prefix.Addr().Is6() {
			addr.Flags = unix.IFA_F_NODAD
		}
		return wrap(h.AddrAdd(l, addr), "addr add %s", prefix)
	})
}

// via is a route to a gateway, through device, or through the one that knows the gateway if device is empty.
func via(to netip.Prefix, gateway netip.Addr, device string) wire {
	route := &netlink.Route{Dst: ipNet(to), Gw: gateway.AsSlice()}
	return func(h *netlink.Handle) error {
		if device != "" {
			link, err := h.LinkByName(device)
			if err != nil {
				return wrap(err, "link %s", device)
			}
			route.LinkIndex = link.Attrs().Index
		}
		return wrap(h.RouteAdd(route), "route add %s via %s", to, gateway)
	}
}

// direct is a route to what is on a device's link. Table 0 is the main one.
func direct(to netip.Prefix, device string, table int) wire {
	return onLink(device, func(h *netlink.Handle, l netlink.Link) error {
		route := &netlink.Route{Dst: ipNet(to), LinkIndex: l.Attrs().Index, Scope: netlink.SCOPE_LINK, Table: table}
		return wrap(h.RouteAdd(route), "route add %s dev %s", to, device)
	})
}

// blackhole loses what no other route of the table takes, without a word.
func blackhole(to netip.Prefix, table int) wire {
	route := &netlink.Route{Dst: ipNet(to), Type: unix.RTN_BLACKHOLE, Table: table}
	return func(h *netlink.Handle) error { return wrap(h.RouteAdd(route), "route add blackhole %s", to) }
}

// fromDevice routes what comes in by a device by a table of its own.
func fromDevice(device string, table int, family int) wire {
	rule := netlink.NewRule()
	rule.IifName, rule.Table, rule.Family = device, table, family
	return func(h *netlink.Handle) error { return wrap(h.RuleAdd(rule), "rule add iif %s", device) }
}

// neighbour is a fixed neighbour entry.
func neighbour(addr netip.Addr, mac net.HardwareAddr, device string) wire {
	return onLink(device, func(h *netlink.Handle, l netlink.Link) error {
		return wrap(h.NeighAdd(&netlink.Neigh{
			LinkIndex: l.Attrs().Index, IP: addr.AsSlice(), HardwareAddr: mac, State: netlink.NUD_PERMANENT,
		}), "neigh add %s", addr)
	})
}

func ipNet(p netip.Prefix) *net.IPNet {
	return &net.IPNet{IP: p.Addr().AsSlice(), Mask: net.CIDRMask(p.Bits(), p.Addr().BitLen())}
}

// wrap says what failed, in the words of ip(8).
func wrap(err error, format string, args ...any) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %w", fmt.Sprintf(format, args...), err)
}
