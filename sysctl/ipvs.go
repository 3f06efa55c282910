package sysctl

import "fmt"

// Version is a kernel version's first two numbers.
type Version struct{ Major, Minor int }

// ParseVersion reads the version out of a kernel release as uname(2) gives it,
// such as "6.1.0-13-amd64".
func ParseVersion(release string) (Version, error) {
	var v Version
	if _, err := fmt.Sscanf(release, "%d.%d", &v.Major, &v.Minor); err != nil {
		return Version{}, fmt.Errorf("reading the kernel release %q: %w", release, err)
	}
	return v, nil
}

// AtLeast reports whether v is major.minor or newer.
func (v Version) AtLeast(major, minor int) bool {
	return v.Major > major || v.Major == major && v.Minor >= minor
}

// Options say which settings are wanted besides those that IPVS always needs.
type Options struct {
	// IPv6 asks for forwarding of IPv6. The kernel then ignores router
	// advertisements on devices whose accept_ra is 1 and not 2.
	IPv6 bool
	// StrictARP makes every device answer ARP only for its own addresses. It
	// holds for the whole node, and breaks networks that rely on the opposite.
	StrictARP bool
}

// IPVS returns the settings for Services over IPVS on a kernel.
func IPVS(kernel Version, o Options) []Setting {
	settings := []Setting{
		// Without connection tracking, masquerading and the firewall do not see
		// IPVS's connections.
		{Key: "net.ipv4.vs.conntrack", Value: 1},
		{Key: "net.ipv4.vs.conn_reuse_mode", Value: reuseMode(kernel), Optional: !kernel.AtLeast(4, 1)},
		// A connection to a real server that is gone ends with its next packet,
		// instead of after minutes.
		{Key: "net.ipv4.vs.expire_nodest_conn", Value: 1},
		// A client bound to a draining real server moves to another one.
		{Key: "net.ipv4.vs.expire_quiescent_template", Value: 1},
		{Key: "net.ipv4.ip_forward", Value: 1},
	}
	if o.IPv6 {
		settings = append(settings, Setting{Key: "net.ipv6.conf.all.forwarding", Value: 1})
	}
	if o.StrictARP {
		settings = append(settings,
			Setting{Key: "net.ipv4.conf.all.arp_ignore", Value: 1},
			Setting{Key: "net.ipv4.conf.all.arp_announce", Value: 2})
	}
	return settings
}

// reuseMode returns what to do with a connection from a port that still has an
// old entry. With 1 it is scheduled anew, and never sent to a real server that
// is draining; but up to Linux 5.8 its first packet is dropped if connection
// tracking is on, and the client waits a second (the fix is
// the kernel's commit "ipvs: allow connection reuse for unconfirmed
// conntrack"). With 0 it follows the old entry.
func reuseMode(kernel Version) int {
	if kernel.AtLeast(5, 9) {
		return 1
	}
	return 0
}
