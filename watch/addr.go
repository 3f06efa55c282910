package watch

import (
	"fmt"
	"net/netip"
	"strings"
)

// parseAddr reads an address as the API may hold it: with leading zeros in
// IPv4 from before Kubernetes 1.33, or as an IPv4-mapped IPv6 address, which
// becomes plain IPv4. A zone is refused.
func parseAddr(text string) (netip.Addr, error) {
	addr, err := netip.ParseAddr(text)
	if err != nil {
		addr, err = netip.ParseAddr(withoutLeadingZeros(text))
	}
	if err != nil || addr.Zone() != "" {
		return netip.Addr{}, fmt.Errorf("address %q is not an IP address", text)
	}
	return addr.Unmap(), nil
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
