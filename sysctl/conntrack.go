package sysctl

import "time"

// ConntrackOptions are the wishes for connection tracking; what is 0 or false
// stays as it is.
type ConntrackOptions struct {
	// MaxPerCore times the number of CPUs, and at least Min, is the number of
	// entries that the table must take.
	MaxPerCore, Min, CPUs int

	TCPEstablished, TCPCloseWait time.Duration
	UDP, UDPStream               time.Duration
	TCPBeLiberal                 bool
}

// mostByCores bounds what MaxPerCore asks for: with very many cores the product
// would cost memory that nobody needs.
const mostByCores = 1 << 20

// Max returns the number of entries that the table must take, 0 for no wish.
func (o ConntrackOptions) Max() int {
	if o.MaxPerCore == 0 {
		return o.Min
	}
	return max(min(o.MaxPerCore*o.CPUs, mostByCores), o.Min)
}

// Conntrack returns the settings for connection tracking, which every Service
// connection needs an entry of.
func Conntrack(o ConntrackOptions) []Setting {
	var settings []Setting
	if n := o.Max(); n > 0 {
		settings = append(settings, Setting{Key: "net.netfilter.nf_conntrack_max", Value: n, AtLeast: true})
	}
	for _, t := range []struct {
		key  string
		wish time.Duration
	}{
		{"net.netfilter.nf_conntrack_tcp_timeout_established", o.TCPEstablished},
		{"net.netfilter.nf_conntrack_tcp_timeout_close_wait", o.TCPCloseWait},
		{"net.netfilter.nf_conntrack_udp_timeout", o.UDP},
		{"net.netfilter.nf_conntrack_udp_timeout_stream", o.UDPStream},
	} {
		if t.wish > 0 {
			settings = append(settings, Setting{Key: t.key, Value: int(t.wish.Seconds())})
		}
	}
	if o.TCPBeLiberal {
		settings = append(settings, Setting{Key: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: 1})
	}
	return settings
}
