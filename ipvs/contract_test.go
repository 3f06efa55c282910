package ipvs

import (
	"errors"
	"net/netip"
	"os"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
	"golang.org/x/sys/unix"
)

// eachKernel runs a test against the fake and, where the environment says that
// this process stands in a network namespace of its own on a kernel with IPVS,
// against the real one.
func eachKernel(t *testing.T, test func(t *testing.T, k Kernel)) {
	t.Helper()
	t.Run("fake", func(t *testing.T) { test(t, NewFake()) })
	t.Run("kernel", func(t *testing.T) {
		if os.Getenv("KUBE_IPVS_KERNEL") == "" {
			t.Skip("needs a kernel with IPVS; run by make contract")
		}
		k, err := openKernel()
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { k.handle.Flush() })
		test(t, k)
	})
}

func tcp(addr string) state.ServerKey {
	ap := netip.MustParseAddrPort(addr)
	return state.ServerKey{Addr: ap.Addr(), Port: ap.Port(), Protocol: state.TCP}
}

func udp(addr string) state.ServerKey {
	k := tcp(addr)
	k.Protocol = state.UDP
	return k
}

var keys = []state.ServerKey{
	tcp("10.96.0.1:80"), udp("10.96.0.1:80"), {Addr: netip.MustParseAddr("10.96.0.1"), Port: 80, Protocol: state.SCTP},
	tcp("[fd00:96::1]:80"), state.MarkKey(state.IPv4, 0x4b000101), state.MarkKey(state.IPv6, 0x4b000101),
}

func realOf(k state.ServerKey) netip.AddrPort {
	if k.Family() == state.IPv6 {
		return netip.MustParseAddrPort("[fd00:244::1]:8080")
	}
	return netip.MustParseAddrPort("10.244.0.1:8080")
}

func TestContractServersAreReportedAsMade(t *testing.T) {
	eachKernel(t, func(t *testing.T, k Kernel) {
		want := map[state.ServerKey]Server{}
		for _, key := range keys {
			s := Server{Key: key, Scheduler: "sh", Flags: state.Persistent | state.Sched1 | state.Sched2, Timeout: 600}
			must(t, k.AddServer(s))
			want[key] = s
		}
		list, err := k.Servers()
		must(t, err)
		if len(list) != len(want) {
			t.Fatalf("want %d servers, got %v", len(want), list)
		}
		for _, s := range list {
			if want[s.Key] != s {
				t.Errorf("want %+v, got %+v", want[s.Key], s)
			}
		}
	})
}

func TestContractRealsAreReportedAsMade(t *testing.T) {
	eachKernel(t, func(t *testing.T, k Kernel) {
		for _, key := range keys {
			must(t, k.AddServer(Server{Key: key, Scheduler: "rr"}))
			must(t, k.AddReal(key, Real{At: realOf(key), Weight: 1}))
			must(t, k.EditReal(key, Real{At: realOf(key), Weight: 0}))
			list, err := k.Reals(key)
			must(t, err)
			if len(list) != 1 || list[0] != (Real{At: realOf(key)}) {
				t.Errorf("%s: got %+v", key, list)
			}
			must(t, k.DelReal(key, realOf(key)))
			must(t, k.DelServer(key))
		}
	})
}

func TestContractWhatIsNotThere(t *testing.T) {
	eachKernel(t, func(t *testing.T, k Kernel) {
		for _, key := range keys {
			if list, err := k.Reals(key); len(list) != 0 || err != nil {
				t.Errorf("real servers of %s: %v, %v", key, list, err)
			}
			if has, err := k.Has(key); has || err != nil {
				t.Errorf("%s before: %t, %v", key, has, err)
			}
			must(t, k.AddServer(Server{Key: key, Scheduler: "rr"}))
			if has, err := k.Has(key); !has || err != nil {
				t.Errorf("%s: %t, %v", key, has, err)
			}
		}
	})
}

func TestContractRefusals(t *testing.T) {
	eachKernel(t, func(t *testing.T, k Kernel) {
		key, other := keys[0], keys[1]
		must(t, k.AddServer(Server{Key: key, Scheduler: "rr"}))
		must(t, k.AddReal(key, Real{At: realOf(key), Weight: 1}))
		unknown := netip.MustParseAddrPort("10.244.0.9:1")
		for name, c := range map[string]struct {
			err  error
			want error
		}{
			"add what is there":             {k.AddServer(Server{Key: key, Scheduler: "rr"}), unix.EEXIST},
			"add with unknown scheduler":    {k.AddServer(Server{Key: other, Scheduler: "nosuch"}), unix.ENOENT},
			"edit to unknown scheduler":     {k.EditServer(Server{Key: key, Scheduler: "nosuch"}), unix.ENOENT},
			"edit what is not there":        {k.EditServer(Server{Key: other, Scheduler: "rr"}), unix.ESRCH},
			"delete what is not there":      {k.DelServer(other), unix.ESRCH},
			"add real twice":                {k.AddReal(key, Real{At: realOf(key), Weight: 1}), unix.EEXIST},
			"add real to nothing":           {k.AddReal(other, Real{At: realOf(key), Weight: 1}), unix.ESRCH},
			"add what is no host's address": {k.AddReal(key, Real{At: netip.MustParseAddrPort("224.1.1.1:80"), Weight: 1}), unix.EINVAL},
			"edit unknown real":             {k.EditReal(key, Real{At: unknown, Weight: 1}), unix.ENOENT},
			"delete unknown real":           {k.DelReal(key, unknown), unix.ENOENT},
			"delete real of nothing":        {k.DelReal(other, unknown), unix.ESRCH},
		} {
			if !errors.Is(c.err, c.want) {
				t.Errorf("%s: want %v, got %v", name, c.want, c.err)
			}
		}
	})
}

func TestContractEverySchedulerIsThere(t *testing.T) {
	eachKernel(t, func(t *testing.T, k Kernel) {
		for _, name := range []string{"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "mh", "sed", "nq", "fo", "ovf"} {
			must(t, k.AddServer(Server{Key: keys[0], Scheduler: name}))
			must(t, k.DelServer(keys[0]))
		}
	})
}

func TestContractTimeouts(t *testing.T) {
	eachKernel(t, func(t *testing.T, k Kernel) {
		table := New(k, testConfig(nil))
		before, err := k.Timeouts()
		must(t, err)
		_, changed, err := table.EnsureTimeouts(Timeouts{UDP: 77e9})
		must(t, err)
		after, err := k.Timeouts()
		must(t, err)
		if want := before.with(Timeouts{UDP: 77e9}); !changed || after != want {
			t.Errorf("want %s, got %s (changed %t)", want, after, changed)
		}
		if _, changed, err := table.EnsureTimeouts(Timeouts{UDP: 77e9}); changed || err != nil {
			t.Errorf("second time: changed %t, %v", changed, err)
		}
	})
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
