// Package state is the plain data that flows through kube-ipvs: what the
// cluster says (Cluster), who this node is (Self) and what this node's kernel
// shall hold (Node). It decides nothing and never does any I/O.
package state

import (
	"cmp"
	"fmt"
	"net/netip"
	"strings"
)

// Name identifies a namespaced Kubernetes object.
type Name struct{ Namespace, Name string }

// String returns namespace/name.
func (n Name) String() string { return n.Namespace + "/" + n.Name }

// Compare orders names.
func (n Name) Compare(o Name) int {
	return cmp.Or(cmp.Compare(n.Namespace, o.Namespace), cmp.Compare(n.Name, o.Name))
}

// Protocol is the IP protocol number of a Service port.
type Protocol uint8

// The protocols that a Service port may have.
const (
	TCP  Protocol = 6
	UDP  Protocol = 17
	SCTP Protocol = 132
)

// ParseProtocol reads the API's name of a protocol; empty means TCP.
func ParseProtocol(s string) (Protocol, error) {
	switch strings.ToUpper(s) {
	case "", "TCP":
		return TCP, nil
	case "UDP":
		return UDP, nil
	case "SCTP":
		return SCTP, nil
	}
	return 0, fmt.Errorf("protocol %q is none of TCP, UDP, SCTP", s)
}

// String returns the lower-case name, as ipset and iptables write it.
func (p Protocol) String() string {
	switch p {
	case TCP:
		return "tcp"
	case UDP:
		return "udp"
	case SCTP:
		return "sctp"
	}
	return fmt.Sprintf("proto-%d", uint8(p))
}

// Family is an address family.
type Family uint8

// The two families. The zero value is neither.
const (
	IPv4 Family = 4
	IPv6 Family = 6
)

// FamilyOf returns the family of an address; an IPv4-mapped IPv6 address
// counts as IPv6, so unmap addresses when they are parsed.
func FamilyOf(a netip.Addr) Family {
	if a.Is4() {
		return IPv4
	}
	return IPv6
}

// String returns IPv4 or IPv6, as Kubernetes writes it.
func (f Family) String() string { return fmt.Sprintf("IPv%d", uint8(f)) }
