package ipset

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// The wire format is that of include/uapi/linux/netfilter/ipset/ip_set.h.
const (
	netOrder = unix.NLA_F_NET_BYTEORDER
	nested   = unix.NLA_F_NESTED

	// headerOnly is IPSET_FLAG_LIST_HEADER: list no entries.
	headerOnly = 1 << 2
	// fullMask is the mask with which a mark is stored.
	fullMask = 0xffffffff
	// attrHeader is the size of an attribute's header.
	attrHeader = 4
)

var errMalformed = errors.New("the kernel's message is malformed")

// revisions are the revisions of the set types that introduced packet marks,
// in Linux 3.18. A set needs no more, so older kernels than today's will do.
var revisions = map[state.SetType]byte{
	state.HashIP:        4,
	state.HashNet:       6,
	state.HashIPPort:    5,
	state.HashIPPortIP:  5,
	state.HashIPPortNet: 7,
}

// header is what the kernel says of a set without its entries.
type header struct {
	spec
	Header
}

// message starts a request.
func message() []byte {
	b := []byte{unix.AF_UNSPEC, nl.NFNETLINK_V0, 0, 0}
	return appendAttr(b, nl.IPSET_ATTR_PROTOCOL, nl.IPSET_PROTOCOL)
}

// setMessage starts a request about a set.
func setMessage(set string) []byte {
	return appendAttr(message(), nl.IPSET_ATTR_SETNAME, nl.ZeroTerminated(set)...)
}

func headersMessage() []byte {
	flags := binary.BigEndian.AppendUint32(nil, headerOnly)
	return appendAttr(message(), nl.IPSET_ATTR_FLAGS|netOrder, flags...)
}

func createMessage(set string, s spec) []byte {
	family := byte(unix.AF_INET)
	if s.Family == state.IPv6 {
		family = unix.AF_INET6
	}
	b := setMessage(set)
	b = appendAttr(b, nl.IPSET_ATTR_TYPENAME, nl.ZeroTerminated(string(s.Type))...)
	b = appendAttr(b, nl.IPSET_ATTR_REVISION, revisions[s.Type])
	b = appendAttr(b, nl.IPSET_ATTR_FAMILY, family)
	return appendNested(b, nl.IPSET_ATTR_DATA, func(b []byte) []byte {
		b = appendAttr(b, nl.IPSET_ATTR_MAXELEM|netOrder, binary.BigEndian.AppendUint32(nil, s.Max)...)
		if s.Marks {
			flags := binary.BigEndian.AppendUint32(nil, nl.IPSET_FLAG_WITH_SKBINFO)
			b = appendAttr(b, nl.IPSET_ATTR_CADT_FLAGS|netOrder, flags...)
		}
		return b
	})
}

func swapMessage(a, b string) []byte {
	return appendAttr(setMessage(a), nl.IPSET_ATTR_SETNAME2, nl.ZeroTerminated(b)...)
}

// membersMessage is the request to add or delete many entries. Each has a line
// number, counted from 1, which the kernel sends back for the one it refuses.
func membersMessage(set string, members []member) []byte {
	b := appendAttr(setMessage(set), nl.IPSET_ATTR_LINENO, nl.Uint32Attr(0)...)
	return appendNested(b, nl.IPSET_ATTR_ADT, func(b []byte) []byte {
		for i, m := range members {
			b = appendNested(b, nl.IPSET_ATTR_DATA, func(b []byte) []byte {
				b = appendMember(b, m)
				return appendAttr(b, nl.IPSET_ATTR_CADT_LINENO, nl.Uint32Attr(uint32(i+1))...)
			})
		}
		return b
	})
}

// appendMember writes the fields that an entry has. The third part of an entry
// is its first where there is no port.
func appendMember(b []byte, m member) []byte {
	e := m.entry
	ip, cidr := uint16(nl.IPSET_ATTR_IP), uint16(nl.IPSET_ATTR_CIDR)
	if e.Addr.IsValid() {
		b = appendAddr(b, ip, e.Addr)
		b = appendAttr(b, nl.IPSET_ATTR_PORT|netOrder, nl.BEUint16Attr(e.Port)...)
		b = appendAttr(b, nl.IPSET_ATTR_PROTO, byte(e.Protocol))
		ip, cidr = nl.IPSET_ATTR_IP2, nl.IPSET_ATTR_CIDR2
	}
	if e.Net.IsValid() {
		b = appendAddr(b, ip, e.Net.Addr())
		if !e.Net.IsSingleIP() {
			b = appendAttr(b, cidr, byte(e.Net.Bits()))
		}
	}
	if m.mark != 0 {
		b = appendAttr(b, nl.IPSET_ATTR_SKBMARK|netOrder, nl.BEUint64Attr(uint64(m.mark)<<32|fullMask)...)
	}
	return b
}

func appendAddr(b []byte, kind uint16, a netip.Addr) []byte {
	family := uint16(nl.IPSET_ATTR_IPADDR_IPV4)
	if !a.Is4() {
		family = nl.IPSET_ATTR_IPADDR_IPV6
	}
	return appendNested(b, kind, func(b []byte) []byte {
		return appendAttr(b, family|netOrder, a.AsSlice()...)
	})
}

// appendAttr appends an attribute, padded to four bytes.
func appendAttr(b []byte, kind uint16, value ...byte) []byte {
	b = binary.NativeEndian.AppendUint16(b, uint16(attrHeader+len(value)))
	b = binary.NativeEndian.AppendUint16(b, kind)
	b = append(b, value...)
	return append(b, make([]byte, -len(value)&3)...)
}

// appendNested appends an attribute that consists of attributes.
func appendNested(b []byte, kind uint16, fill func([]byte) []byte) []byte {
	start := len(b)
	b = fill(appendAttr(b, kind|nested))
	binary.NativeEndian.PutUint16(b[start:], uint16(len(b)-start))
	return b
}

// attrs are the attributes of a message by type, without the two flag bits.
type attrs map[uint16][]byte

// eachAttr calls visit for each attribute in turn.
func eachAttr(b []byte, visit func(kind uint16, value []byte) error) error {
	for len(b) > 0 {
		if len(b) < attrHeader {
			return errMalformed
		}
		size := int(binary.NativeEndian.Uint16(b))
		if size < attrHeader || size > len(b) {
			return errMalformed
		}
		kind := binary.NativeEndian.Uint16(b[2:]) &^ (nested | netOrder)
		if err := visit(kind, b[attrHeader:size]); err != nil {
			return err
		}
		b = b[min((size+3)&^3, len(b)):]
	}
	return nil
}

func parseAttrs(b []byte) (attrs, error) {
	a := attrs{}
	return a, eachAttr(b, func(kind uint16, value []byte) error {
		a[kind] = value
		return nil
	})
}

func (a attrs) u8(kind uint16) byte {
	if v := a[kind]; len(v) == 1 {
		return v[0]
	}
	return 0
}

func (a attrs) u16(kind uint16) uint16 {
	if v := a[kind]; len(v) == 2 {
		return binary.BigEndian.Uint16(v)
	}
	return 0
}

func (a attrs) u32(kind uint16) uint32 {
	if v := a[kind]; len(v) == 4 {
		return binary.BigEndian.Uint32(v)
	}
	return 0
}

func (a attrs) text(kind uint16) string { return unix.ByteSliceToString(a[kind]) }

// addr reads a nested address.
func (a attrs) addr(kind uint16) (netip.Addr, error) {
	inner, err := parseAttrs(a[kind])
	if err != nil {
		return netip.Addr{}, err
	}
	for _, family := range []uint16{nl.IPSET_ATTR_IPADDR_IPV4, nl.IPSET_ATTR_IPADDR_IPV6} {
		if addr, ok := netip.AddrFromSlice(inner[family]); ok {
			return addr, nil
		}
	}
	return netip.Addr{}, errMalformed
}

// prefix reads an address with its prefix length; an absent length stands for
// a single address.
func (a attrs) prefix(ip, cidr uint16) (netip.Prefix, error) {
	addr, err := a.addr(ip)
	if err != nil {
		return netip.Prefix{}, err
	}
	bits := addr.BitLen()
	if a[cidr] != nil {
		bits = int(a.u8(cidr))
	}
	if bits > addr.BitLen() {
		return netip.Prefix{}, errMalformed
	}
	return netip.PrefixFrom(addr, bits), nil
}

// body returns the attributes of a message, behind its nfgenmsg.
func body(msg []byte) (attrs, error) {
	if len(msg) < nl.SizeofNfgenmsg {
		return nil, errMalformed
	}
	return parseAttrs(msg[nl.SizeofNfgenmsg:])
}

// parseHeader reads a set's header. Later messages about the same set have no
// type; for them the name is empty.
func parseHeader(msg []byte) (name string, h header, err error) {
	a, err := body(msg)
	if err != nil || a[nl.IPSET_ATTR_TYPENAME] == nil {
		return "", header{}, err
	}
	data, err := parseAttrs(a[nl.IPSET_ATTR_DATA])
	if err != nil {
		return "", header{}, err
	}
	family := state.IPv4
	if a.u8(nl.IPSET_ATTR_FAMILY) == unix.AF_INET6 {
		family = state.IPv6
	}
	flags := data.u32(nl.IPSET_ATTR_CADT_FLAGS)
	h.spec = spec{
		Type:   state.SetType(a.text(nl.IPSET_ATTR_TYPENAME)),
		Family: family,
		Marks:  flags&nl.IPSET_FLAG_WITH_SKBINFO != 0,
		Max:    data.u32(nl.IPSET_ATTR_MAXELEM),
		Odd: flags&^nl.IPSET_FLAG_WITH_SKBINFO != 0 ||
			data[nl.IPSET_ATTR_TIMEOUT] != nil || data[nl.IPSET_ATTR_NETMASK] != nil,
	}
	h.Header = Header{
		Elements:   int(data.u32(nl.IPSET_ATTR_ELEMENTS)),
		References: int(data.u32(nl.IPSET_ATTR_REFERENCES)),
	}
	return a.text(nl.IPSET_ATTR_SETNAME), h, nil
}

// parseMembers calls visit for the entries of one message of a list.
func parseMembers(msg []byte, visit func(member)) error {
	a, err := body(msg)
	if err != nil {
		return err
	}
	return eachAttr(a[nl.IPSET_ATTR_ADT], func(kind uint16, value []byte) error {
		if kind != nl.IPSET_ATTR_DATA {
			return nil
		}
		m, err := parseMember(value)
		if err != nil {
			return err
		}
		visit(m)
		return nil
	})
}

// parseMember reads an entry as appendMember writes it.
func parseMember(b []byte) (m member, err error) {
	a, err := parseAttrs(b)
	if err != nil {
		return member{}, err
	}
	if mark := a[nl.IPSET_ATTR_SKBMARK]; len(mark) == 8 {
		m.mark = uint32(binary.BigEndian.Uint64(mark) >> 32)
	}
	if a[nl.IPSET_ATTR_PORT] == nil {
		m.entry.Net, err = a.prefix(nl.IPSET_ATTR_IP, nl.IPSET_ATTR_CIDR)
		return m, err
	}
	m.entry.Port = a.u16(nl.IPSET_ATTR_PORT)
	m.entry.Protocol = state.Protocol(a.u8(nl.IPSET_ATTR_PROTO))
	if m.entry.Addr, err = a.addr(nl.IPSET_ATTR_IP); err != nil {
		return m, err
	}
	if a[nl.IPSET_ATTR_IP2] != nil {
		m.entry.Net, err = a.prefix(nl.IPSET_ATTR_IP2, nl.IPSET_ATTR_CIDR2)
	}
	return m, err
}

// parseRefusal reads the kernel's answer to a request: the error number and
// the request itself, in which the kernel has written the line number of the
// entry that it refused.
func parseRefusal(answer []byte) error {
	if len(answer) < 4 {
		return errMalformed
	}
	err := errorOf(int32(binary.NativeEndian.Uint32(answer)))
	if err == nil || len(answer) < 4+unix.SizeofNlMsghdr {
		return err
	}
	request, malformed := body(answer[4+unix.SizeofNlMsghdr:])
	line := request[nl.IPSET_ATTR_LINENO]
	if malformed != nil || len(line) != 4 {
		return err
	}
	if n := binary.NativeEndian.Uint32(line); n > 0 {
		return &refusal{index: int(n) - 1, err: fmt.Errorf("refused: %w", err)}
	}
	return err
}
