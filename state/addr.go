package state

import (
	"fmt"
	"net/netip"
	"strings"
)

// ParseAddr reads an address as the API may hold it: with leading zeros in
// IPv4 from before Kubernetes 1.33, with blanks around it, or as an IPv4-mapped
// IPv6 address, which becomes plain IPv4. A zone is refused.
func ParseAddr(text string) (netip.Addr, error) {
	trimmed := strings.TrimSpace(text)
	addr, err := netip.ParseAddr(trimmed)
	if err != nil {
		addr, err = netip.ParseAddr(withoutLeadingZeros(trimmed))
	}
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("address %q is not an IP address", text)
	}
	return addr.Unmap(), nil
}

// ParsePrefix reads a CIDR likewise and clears the bits of the host. Prefixes
// of IPv4-mapped addresses are refused.
func ParsePrefix(text string) (netip.Prefix, error) {
	trimmed := strings.TrimSpace(text)
	p, err := netip.ParsePrefix(trimmed)
	if err != nil {
		addr, bits, _ := strings.Cut(trimmed, "/")
		p, err = netip.ParsePrefix(withoutLeadingZeros(addr) + "/" + bits)
	}
	if err != nil || p.Addr().Is4In6() {
		return netip.Prefix{}, fmt.Errorf("%q is not a CIDR", text)
	}
	return p.Masked(), nil
}

// withoutLeadingZeros reads 010.001.000.255 as 10.1.0.255, in decimal as
// Kubernetes always has.
func withoutLeadingZeros(text string) string {
	octets := strings.Split(text, ".")
	for i, o := range octets {
		if len(o) > 3 {
			return text
		}
		if trimmed := strings.TrimLeft(o, "0"); trimmed != "" || o == "" {
			octets[i] = trimmed
		} else {
			octets[i] = "0"
		}
	}
	return strings.Join(octets, ".")
}
