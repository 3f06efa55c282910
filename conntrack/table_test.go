package conntrack

import (
	"errors"
	"net/netip"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

func TestS85NoDumpWithoutNeed(t *testing.T) {
	f := NewFake()
	table := New(f)
	tcpOnly := named(state.ServerKey{Addr: at(dns).Addr(), Protocol: state.TCP, Port: 53})
	for _, change := range []*state.Change{{}, tcpOnly} {
		if _, err := table.Clean(t.Context(), wanted(map[string][]string{dns: {one}}), change); err != nil || f.Dumps != 0 {
			t.Errorf("%d dumps, %v", f.Dumps, err)
		}
	}
	if _, err := table.Clean(t.Context(), wanted(map[string][]string{dns: {one}}), named(key(dns))); err != nil || f.Dumps != 1 {
		t.Errorf("one family: %d dumps, %v", f.Dumps, err)
	}
}

func TestS88InterruptedDumps(t *testing.T) {
	for _, test := range []struct{ interrupt, dumps, deleted int }{
		{0, 1, 2}, {1, 2, 2}, {4, 5, 2},
		{5, 5, 1}, // what was seen has to do
	} {
		f := NewFake()
		f.Add(udp("10.0.0.9:4000", dns, gone))
		f.Add(udp("10.0.0.9:4001", dns, gone))
		f.Interrupt = test.interrupt
		ops, err := New(f).Clean(t.Context(), wanted(nil), named(key(dns)))
		if err != nil || len(ops) != test.deleted || f.Dumps != test.dumps {
			t.Errorf("%d interruptions: %d deleted in %d dumps, %v; want %d in %d", test.interrupt, len(ops), f.Dumps, err, test.deleted, test.dumps)
		}
	}
}

func TestFailures(t *testing.T) {
	f := NewFake()
	for _, source := range []string{"10.0.0.9:4000", "10.0.0.9:4001", "10.0.0.9:4002"} {
		f.Add(udp(source, dns, gone))
	}
	f.Add(udp("[fd00::9]:4000", dns6, "[fd00::1]:1"))
	broken := errors.New("broken")
	f.Fault = func(call string) error {
		if strings.Contains(call, "--orig-port-src 4001") {
			return broken
		}
		return nil
	}
	ops, err := New(f).Clean(t.Context(), wanted(nil), named(key(dns), key(dns6)))
	if len(ops) != 3 || !errors.Is(err, broken) || !strings.Contains(err.Error(), "--orig-port-src 4001") {
		t.Errorf("%d deleted, error %v", len(ops), err)
	}

	f.Fault = func(string) error { return broken }
	if ops, err := New(f).Clean(t.Context(), wanted(nil), named(key(dns))); len(ops) != 0 || !errors.Is(err, broken) {
		t.Errorf("%d deleted, error %v", len(ops), err)
	}
}

func TestFlowPrints(t *testing.T) {
	zoned := udp("10.0.0.9:4000", dns, one)
	zoned.Zone = 3
	for want, f := range map[string]Flow{
		"-p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --orig-src 10.0.0.9 --orig-port-src 4000 " +
			"--reply-src 10.244.1.11 --reply-port-src 5353": udp("10.0.0.9:4000", dns, one),
		"-p udp --orig-dst 10.96.0.10 --orig-port-dst 53 --orig-src 10.0.0.9 --orig-port-src 4000 " +
			"--reply-src 10.244.1.11 --reply-port-src 5353 -w 3": zoned,
		"-f ipv6 -p udp --orig-dst fd00:96::10 --orig-port-dst 53 --orig-src fd00::9 --orig-port-src 4000 " +
			"--reply-src fd00:244::11 --reply-port-src 5353": udp("[fd00::9]:4000", dns6, six),
	} {
		if got := f.String(); got != want {
			t.Errorf("%s\nwant %s", got, want)
		}
	}
}

// TestS86WhatServesIsGood holds that good is only what want.Flows says: whether
// a real server takes new connections does not matter.
func TestS86WhatServesIsGood(t *testing.T) {
	f := NewFake()
	f.Add(udp("10.0.0.9:4000", dns, one))
	want := wanted(map[string][]string{dns: {one}})
	want.VirtualServers[key(dns)] = &state.VirtualServer{Datagrams: true, Real: map[netip.AddrPort]int{at(one): 0, at(two): 1}}
	if ops, err := New(f).Clean(t.Context(), want, named(key(dns))); err != nil || len(ops) != 0 {
		t.Errorf("deleted %v, %v", ops, err)
	}
}

// TestS89OnlyUDP holds that no flow of TCP or SCTP is deleted, whatever is asked
// for: IPVS knows their end.
func TestS89OnlyUDP(t *testing.T) {
	f := NewFake()
	for _, p := range []state.Protocol{state.TCP, state.SCTP} {
		flow := udp("10.0.0.9:4000", dns, gone)
		flow.Protocol = p
		f.Add(flow)
	}
	want := wanted(map[string][]string{dns: {one}})
	change := named(key(dns))
	for _, p := range []state.Protocol{state.TCP, state.SCTP} {
		k := key(dns)
		k.Protocol = p
		want.Flows[k] = nil
		change.Server(k)
	}
	for _, all := range []bool{false, true} {
		change.All = all
		if ops, err := New(f).Clean(t.Context(), want, change); err != nil || len(ops) != 0 {
			t.Errorf("all %t: deleted %v, %v", all, ops, err)
		}
	}
}
