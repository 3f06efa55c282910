package ipvs

import "github.com/vishvananda/netlink"

// loadFamily asks for the generic-netlink family of IPVS, which makes a kernel
// that can load modules load it.
func loadFamily() error {
	_, err := netlink.GenlFamilyGet("IPVS")
	return err
}
