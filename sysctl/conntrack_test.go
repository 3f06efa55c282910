package sysctl

import (
	"reflect"
	"testing"
	"time"
)

func TestConntrack(t *testing.T) {
	most := func(n int) []Setting {
		return []Setting{{Key: "net.netfilter.nf_conntrack_max", Value: n, AtLeast: true}}
	}
	for name, c := range map[string]struct {
		options ConntrackOptions
		want    []Setting
	}{
		"no wish":              {ConntrackOptions{CPUs: 4}, nil},
		"per core":             {ConntrackOptions{MaxPerCore: 32768, CPUs: 8, Min: 131072}, most(262144)},
		"at least the minimum": {ConntrackOptions{MaxPerCore: 32768, CPUs: 2, Min: 131072}, most(131072)},
		"very many cores":      {ConntrackOptions{MaxPerCore: 32768, CPUs: 256, Min: 131072}, most(1 << 20)},
		"a minimum above that": {ConntrackOptions{MaxPerCore: 32768, CPUs: 256, Min: 1 << 21}, most(1 << 21)},
		"only a minimum":       {ConntrackOptions{CPUs: 2, Min: 5}, most(5)},
		"the rest": {ConntrackOptions{TCPEstablished: 24 * time.Hour, TCPCloseWait: time.Hour, UDP: 30 * time.Second, UDPStream: time.Minute, TCPBeLiberal: true}, []Setting{
			{Key: "net.netfilter.nf_conntrack_tcp_timeout_established", Value: 86400},
			{Key: "net.netfilter.nf_conntrack_tcp_timeout_close_wait", Value: 3600},
			{Key: "net.netfilter.nf_conntrack_udp_timeout", Value: 30},
			{Key: "net.netfilter.nf_conntrack_udp_timeout_stream", Value: 60},
			{Key: "net.netfilter.nf_conntrack_tcp_be_liberal", Value: 1},
		}},
	} {
		if got := Conntrack(c.options); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%s: want %v, got %v", name, c.want, got)
		}
	}
}
