package conntrack

import (
	"encoding/binary"
	"iter"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Attributes and flags that package nl lacks
// (include/uapi/linux/netfilter/nfnetlink_conntrack.h, and the flags, which
// are in the byte order of the machine, net/netfilter/nf_internals.h).
const (
	attrFilter         = 25 // CTA_FILTER
	attrFilterOriginal = 1  // CTA_FILTER_ORIG_FLAGS
	attrTupleZone      = 3  // CTA_TUPLE_ZONE

	filterDestination     = 1 << 1 // CTA_FILTER_F_CTA_IP_DST
	filterProtocol        = 1 << 3 // CTA_FILTER_F_CTA_PROTO_NUM
	filterDestinationPort = 1 << 5 // CTA_FILTER_F_CTA_PROTO_DST_PORT
)

// tuple is one direction of an entry.
type tuple struct {
	source, destination         netip.Addr
	sourcePort, destinationPort uint16
	protocol                    state.Protocol
	zone                        uint16
	hasZone                     bool
}

// decode reads a message of the kernel's dump, without its netlink header. It
// reports false for a message that lacks an address: that is no flow to a
// virtual server.
func decode(message []byte) (Flow, bool) {
	if len(message) < nl.SizeofNfgenmsg {
		return Flow{}, false
	}
	var (
		flow            Flow
		original, reply tuple
		zone            uint16
	)
	for kind, value := range attributes(message[nl.SizeofNfgenmsg:]) {
		switch kind {
		case nl.CTA_TUPLE_ORIG:
			original = decodeTuple(value)
		case nl.CTA_TUPLE_REPLY:
			reply = decodeTuple(value)
		case nl.CTA_ZONE:
			zone = number16(value)
		case nl.CTA_ID:
			flow.ID = number32(value)
		}
	}
	if !original.source.IsValid() || !original.destination.IsValid() || !reply.source.IsValid() {
		return Flow{}, false
	}
	flow.Protocol = original.protocol
	flow.Source = netip.AddrPortFrom(original.source, original.sourcePort)
	flow.Destination = netip.AddrPortFrom(original.destination, original.destinationPort)
	flow.ReplySource = netip.AddrPortFrom(reply.source, reply.sourcePort)
	flow.Zone, flow.ZoneOfTuple = zone, original.hasZone
	if original.hasZone {
		flow.Zone = original.zone
	}
	return flow, true
}

func decodeTuple(b []byte) tuple {
	var t tuple
	for kind, value := range attributes(b) {
		switch kind {
		case nl.CTA_TUPLE_IP:
			t.decodeAddresses(value)
		case nl.CTA_TUPLE_PROTO:
			t.decodeProtocol(value)
		case attrTupleZone:
			t.zone, t.hasZone = number16(value), true
		}
	}
	return t
}

func (t *tuple) decodeAddresses(b []byte) {
	for kind, value := range attributes(b) {
		addr, _ := netip.AddrFromSlice(value)
		switch kind {
		case nl.CTA_IP_V4_SRC, nl.CTA_IP_V6_SRC:
			t.source = addr
		case nl.CTA_IP_V4_DST, nl.CTA_IP_V6_DST:
			t.destination = addr
		}
	}
}

func (t *tuple) decodeProtocol(b []byte) {
	for kind, value := range attributes(b) {
		switch kind {
		case nl.CTA_PROTO_NUM:
			if len(value) > 0 {
				t.protocol = state.Protocol(value[0])
			}
		case nl.CTA_PROTO_SRC_PORT:
			t.sourcePort = number16(value)
		case nl.CTA_PROTO_DST_PORT:
			t.destinationPort = number16(value)
		}
	}
}

// attributes yields the type, without flags, and the value of each netlink
// attribute up to the first that is cut off.
func attributes(b []byte) iter.Seq2[uint16, []byte] {
	return func(yield func(uint16, []byte) bool) {
		for len(b) >= unix.SizeofNlAttr {
			length := int(binary.NativeEndian.Uint16(b))
			kind := binary.NativeEndian.Uint16(b[2:]) & nl.NLA_TYPE_MASK
			if length < unix.SizeofNlAttr || length > len(b) || !yield(kind, b[unix.SizeofNlAttr:length]) {
				return
			}
			b = b[min(len(b), (length+3)&^3):]
		}
	}
}

func number16(b []byte) uint16 {
	if len(b) < 2 {
		return 0
	}
	return binary.BigEndian.Uint16(b)
}

func number32(b []byte) uint32 {
	if len(b) < 4 {
		return 0
	}
	return binary.BigEndian.Uint32(b)
}

// identify returns the attributes by which the kernel finds an entry. The
// number makes it spare another one that took its place meanwhile.
func identify(f Flow) []nl.NetlinkRequestData {
	original := nested(nl.CTA_TUPLE_ORIG)
	original.AddChild(addresses(f.Source.Addr(), f.Destination.Addr()))
	ports := original.AddRtAttr(nl.CTA_TUPLE_PROTO|int(nl.NLA_F_NESTED), nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(f.Protocol)})
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(f.Source.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(f.Destination.Port()))
	data := []nl.NetlinkRequestData{original}
	switch {
	case f.ZoneOfTuple:
		original.AddRtAttr(attrTupleZone, nl.BEUint16Attr(f.Zone))
	case f.Zone != 0:
		data = append(data, nl.NewRtAttr(nl.CTA_ZONE, nl.BEUint16Attr(f.Zone)))
	}
	if f.ID != 0 {
		data = append(data, nl.NewRtAttr(nl.CTA_ID, nl.BEUint32Attr(f.ID)))
	}
	return data
}

// encode returns the attributes by which the kernel leaves entries out of a
// dump. An IPv6 address is not among them: the kernel (seen in 6.1 and 6.18)
// compares it the wrong way round and leaves out the entries that match.
func (f filter) encode() []nl.NetlinkRequestData {
	flags := uint32(filterProtocol)
	original := nested(nl.CTA_TUPLE_ORIG)
	if f.destination.Addr().Is4() {
		flags |= filterDestination
		original.AddChild(addresses(netip.Addr{}, f.destination.Addr()))
	}
	ports := original.AddRtAttr(nl.CTA_TUPLE_PROTO|int(nl.NLA_F_NESTED), nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(f.protocol)})
	if f.destination.IsValid() {
		flags |= filterDestinationPort
		ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(f.destination.Port()))
	}
	mask := nested(attrFilter)
	mask.AddRtAttr(attrFilterOriginal, nl.Uint32Attr(flags))
	return []nl.NetlinkRequestData{original, mask}
}

// addresses returns a tuple's address attribute; an address that is not valid
// is left out.
func addresses(source, destination netip.Addr) *nl.RtAttr {
	sourceKind, destinationKind := nl.CTA_IP_V4_SRC, nl.CTA_IP_V4_DST
	if state.FamilyOf(destination) == state.IPv6 {
		sourceKind, destinationKind = nl.CTA_IP_V6_SRC, nl.CTA_IP_V6_DST
	}
	ip := nested(nl.CTA_TUPLE_IP)
	if source.IsValid() {
		ip.AddRtAttr(sourceKind, source.AsSlice())
	}
	ip.AddRtAttr(destinationKind, destination.AsSlice())
	return ip
}

func nested(kind int) *nl.RtAttr { return nl.NewRtAttr(kind|int(nl.NLA_F_NESTED), nil) }
