package proxy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/conntrack"
	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
)

// somebodyElse makes a virtual server as another program would.
func (k *kernel) somebodyElse(t *testing.T, key state.ServerKey) {
	t.Helper()
	theirs := ipvs.Real{At: netip.MustParseAddrPort("192.0.2.99:1"), Weight: 7}
	if err := errors.Join(k.servers.AddServer(ipvs.Server{Key: key, Scheduler: "wlc"}), k.servers.AddReal(key, theirs)); err != nil {
		t.Fatal(err)
	}
}

func tcpKey(at string) state.ServerKey {
	ap := netip.MustParseAddrPort(at)
	return state.ServerKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: state.TCP}
}

// untouched fails unless what somebodyElse made is as it was.
func (k *kernel) untouched(t *testing.T, key state.ServerKey) {
	t.Helper()
	k.has(t, "-A "+key.String()+" -s wlc\n-a "+key.String()+" -r 192.0.2.99:1 -m -w 7\n")
	if n := strings.Count(k.servers.Save(), "-a "+key.String()+" "); n != 1 {
		t.Errorf("%d real servers at %s", n, key)
	}
}

// TestOthersAreLeftAlone goes through the ways to meet a virtual server of
// another program, for long enough that drains and whole passes come by.
func TestOthersAreLeftAlone(t *testing.T) {
	for name, c := range map[string]struct {
		at   string
		late bool // it appears after the last read, before the Service
	}{
		"at an address that would be bound":      {at: "203.0.113.1:80"},
		"at a node port":                         {at: "192.0.2.11:30080"},
		"at another port of an address of ours":  {at: "203.0.113.1:8443"},
		"where nobody wants anything":            {at: "192.0.2.200:6443"},
		"at a node port since the last read":     {at: "192.0.2.11:30080", late: true},
		"at a bound address since the last read": {at: "203.0.113.1:80", late: true},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKernel()
			key := tcpKey(c.at)
			r := k.start(testOptions())
			if c.late {
				r.mustSettle(t)
			}
			k.somebodyElse(t, key)
			r.proxy.Sink().SetService(service())
			r.proxy.Sink().SetSlice(slice("10.244.2.11"))
			for range 5 {
				_, _ = r.settle()
				k.untouched(t, key)
				r.proxy.Sink().Disturbed()
				k.now = k.now.Add(time.Minute)
			}
			r = k.start(testOptions())
			r.proxy.Sink().SetService(service())
			r.proxy.Sink().SetSlice(slice("10.244.2.11"))
			r.mustSettle(t)
			k.untouched(t, key)
			r.proxy.Sink().DeleteService(web)
			r.mustSettle(t)
			k.untouched(t, key)
			r.mustRest(t)
		})
	}
}

func TestFlowsOfOthersAreLeftAlone(t *testing.T) {
	k := newKernel()
	key := tcpKey("192.0.2.11:30080")
	key.Protocol = state.UDP
	k.somebodyElse(t, key)
	r := k.start(testOptions())
	s := service()
	s.Ports[0].Protocol = "UDP"
	udp := func(endpoints ...string) *state.Slice {
		s := slice(endpoints...)
		s.Ports[0].Protocol = state.UDP
		return s
	}
	r.proxy.Sink().SetService(s)
	r.proxy.Sink().SetSlice(udp("10.244.2.11"))
	r.mustSettle(t)
	k.flows.Add(conntrack.Flow{
		Protocol: state.UDP, Source: netip.MustParseAddrPort("198.51.100.1:4000"),
		Destination: netip.MustParseAddrPort("192.0.2.11:30080"), ReplySource: netip.MustParseAddrPort("192.0.2.99:1"),
	})
	r.proxy.Sink().SetSlice(udp("10.244.2.11", "10.244.2.12"))
	r.mustSettle(t)
	r.proxy.Sink().DeleteService(web)
	r.mustSettle(t)
	if n := len(k.flows.Flows()); n != 1 {
		t.Errorf("%d flows left, want 1", n)
	}
}

// TestNothingIsReachableWithoutItsSets: the sets of a new Service fail, and its
// endpoints come before the retry.
func TestNothingIsReachableWithoutItsSets(t *testing.T) {
	for _, fault := range []string{"add KIPVS-EXTERNAL", "add "} {
		k := newKernel()
		r := k.start(testOptions())
		r.mustSettle(t)
		k.sets.Fault = func(call string) error {
			if strings.HasPrefix(call, fault) {
				return errors.New("injected")
			}
			return nil
		}
		r.proxy.Sink().SetService(service())
		if _, err := r.settle(); err == nil {
			t.Error("no error")
		}
		k.sets.Fault = nil
		k.now = k.now.Add(100 * time.Millisecond)
		r.proxy.Sink().SetSlice(slice("10.244.2.11"))
		r.proxy.Sink().Disturbed()
		_, _ = r.settle()
		k.lacks(t, "-A -t 192.0.2.11:30080", "-A -t 203.0.113.1:80", "203.0.113.1/32")

		k.now = k.now.Add(lastRetry)
		r.mustSettle(t)
		k.has(t, "-a -t 192.0.2.11:30080 -r 10.244.2.11:8080", "add KIPVS-EXTERNAL 192.0.2.11,tcp:30080", "203.0.113.1/32")
		r.mustRest(t)
	}
}

// TestLockedIptablesHoldsUpNothingElse: the rules were in place once, somebody
// flushed them and holds the lock.
func TestLockedIptablesHoldsUpNothingElse(t *testing.T) {
	r := settled(t, "10.244.2.11")
	k := r.kernel
	k.rules.Fault = func(string) error { return errors.New("the lock is held") }
	if _, err := r.again(); err == nil {
		t.Error("no error")
	}
	r.proxy.Sink().SetSlice(slice("10.244.2.12"))
	_, _ = r.settle()
	k.has(t, "-a -t 10.96.0.101:80 -r 10.244.2.12:8080")
}

// TestFailureIsRetriedSoon: the cause is gone, and five seconds later so is the
// damage, however often it had been tried.
func TestFailureIsRetriedSoon(t *testing.T) {
	k := newKernel()
	r := k.start(testOptions())
	k.sets.Fault = func(string) error { return errors.New("injected") }
	r.proxy.Sink().SetService(service())
	r.proxy.Sink().SetSlice(slice("10.244.2.11"))
	for range 20 {
		_, _ = r.settle()
		k.now = k.now.Add(time.Second)
	}
	k.sets.Fault = nil
	k.now = k.now.Add(lastRetry)
	r.mustSettle(t)
	k.has(t, "-a -t 10.96.0.101:80 -r 10.244.2.11:8080")
}

// TestFailedKeysAreKeptOnce: one new Service after the other fails before a
// whole pass comes by.
func TestFailedKeysAreKeptOnce(t *testing.T) {
	k := newKernel()
	r := k.start(testOptions())
	r.mustSettle(t)
	k.servers.Fault = func(call string) error {
		if call == "AddServer" {
			return errors.New("injected")
		}
		return nil
	}
	for i := range 16 {
		r.proxy.Sink().SetService(manyService(i))
		_, _ = r.settle()
	}
	if n := len(r.proxy.failed); n != 16 {
		t.Errorf("%d failed keys, want 16", n)
	}
}

// TestRulesThatWereReadButNotMendedAreNotSettled: the pass that finds the rules
// flushed ends before it can write them.
func TestRulesThatWereReadButNotMendedAreNotSettled(t *testing.T) {
	k := newKernel()
	r := k.start(testOptions())
	r.proxy.Sink().SetService(service())
	r.mustSettle(t)
	r.proxy.rulesDue = true
	k.vips.Fault = func(string) error { return errors.New("injected") }
	if _, err := r.again(); err == nil || !r.proxy.rulesDue {
		t.Errorf("error %v, rules due %t", err, r.proxy.rulesDue)
	}
}
