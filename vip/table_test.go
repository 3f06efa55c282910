package vip

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// calls records the calls to a fake.
func calls(f *Fake) *[]string {
	var seen []string
	f.Fault = func(call string) error {
		if len(seen) == 0 || seen[len(seen)-1] != call {
			seen = append(seen, call)
		}
		return nil
	}
	return &seen
}

func TestOnlyTheChangeIsLookedAt(t *testing.T) {
	f := NewFake()
	table := New(device, f)
	mustSync(t, table, node("10.96.0.1", "10.96.0.2"))
	want := node("10.96.0.3", "10.96.0.4")
	change := &state.Change{}
	for _, a := range []string{"10.96.0.1", "10.96.0.3", "10.96.0.5"} {
		change.Address(netip.MustParseAddr(a))
	}
	seen := calls(f)
	if _, err := table.Ensure(t.Context(), want, change); err != nil {
		t.Error(err)
	}
	if _, err := table.Prune(t.Context(), want, change); err != nil {
		t.Error(err)
	}
	expect(t, *seen, "addr add 10.96.0.3/32", "addr del 10.96.0.1/32")
}

func TestNothingToDoCallsNothing(t *testing.T) {
	f := NewFake()
	table := New(device, f)
	want := node("10.96.0.1", "fd00::1")
	mustSync(t, table, want)
	seen := calls(f)
	if _, err := table.Ensure(t.Context(), want, all()); err != nil {
		t.Error(err)
	}
	if _, err := table.Prune(t.Context(), want, all()); err != nil {
		t.Error(err)
	}
	expect(t, *seen)
}

func TestOneFailureSparesTheOthers(t *testing.T) {
	f := NewFake()
	f.Fault = func(call string) error {
		if call == "addr add fd00::1/128" {
			return unix.EACCES
		}
		return nil
	}
	table := New(device, f)
	done, err := table.Ensure(t.Context(), node("10.96.0.1", "fd00::1", "fd00::2"), all())
	if !errors.Is(err, unix.EACCES) || !strings.Contains(err.Error(), "net.ipv6.conf.kube-ipvs0.disable_ipv6") {
		t.Errorf("got %v", err)
	}
	if len(done) != 3 || len(table.Addresses()) != 2 {
		t.Errorf("got %q", texts(done))
	}
}

func TestErrorsAreCounted(t *testing.T) {
	f := NewFake()
	f.Fault = func(call string) error {
		if strings.HasPrefix(call, "addr add") {
			return unix.ENOBUFS
		}
		return nil
	}
	want := node()
	for i := range 20 {
		want.Addresses[netip.AddrFrom4([4]byte{10, 96, 0, byte(i)})] = struct{}{}
	}
	_, err := New(device, f).Ensure(t.Context(), want, all())
	if err == nil {
		t.Fatal("no error")
	}
	if lines := strings.Split(err.Error(), "\n"); lines[len(lines)-1] != "device kube-ipvs0: 12 more addresses failed" {
		t.Errorf("got\n%v", err)
	}
}

func TestMissingModuleAndRight(t *testing.T) {
	for errno, want := range map[unix.Errno]string{
		unix.EPERM:      "NET_ADMIN",
		unix.EOPNOTSUPP: "modprobe dummy",
	} {
		f := NewFake()
		f.Fault = func(call string) error {
			if strings.HasPrefix(call, "link add") {
				return errno
			}
			return nil
		}
		table := New(device, f)
		_, ensure := table.Ensure(t.Context(), node("10.96.0.1"), all())
		for _, err := range []error{table.Probe(), ensure} {
			if !errors.Is(err, errno) || !strings.Contains(err.Error(), want) {
				t.Errorf("the error does not say %q: %v", want, err)
			}
		}
	}
}

// TestFaults fails one call in ten, before or after it took effect. When the
// faults stop, one more sync reaches what is wanted.
func TestFaults(t *testing.T) {
	for seed := range uint64(200) {
		rnd := rand.New(rand.NewPCG(seed, 1))
		f := NewFake()
		f.Put("eth0", "veth", netip.MustParsePrefix("192.0.2.1/24"))
		table := New(device, f)
		for range 10 {
			want := randomNode(rnd)
			f.Fault = func(string) error {
				if rnd.IntN(10) == 0 {
					return unix.EIO
				}
				return nil
			}
			for range 3 {
				_ = table.Read(t.Context())
				_, _ = table.Ensure(t.Context(), want, all())
				_, _ = table.Prune(t.Context(), want, all())
			}
			f.Fault = nil
			mustSync(t, table, want)
			fresh := NewFake()
			mustSync(t, New(device, fresh), want)
			if got, want := f.Show(device), fresh.Show(device); got != want {
				t.Fatalf("seed %d: got\n%s\nwant\n%s", seed, got, want)
			}
		}
		if got := f.Show("eth0"); got != "eth0 inet 192.0.2.1/24 scope global\n" {
			t.Fatalf("seed %d: the stranger's device holds %s", seed, got)
		}
	}
}

func randomNode(rnd *rand.Rand) *state.Node {
	n := node()
	for range rnd.IntN(8) {
		text := fmt.Sprintf("10.96.0.%d", rnd.IntN(8)+1)
		if rnd.IntN(2) == 0 {
			text = fmt.Sprintf("fd00::%d", rnd.IntN(8)+1)
		}
		n.Addresses[netip.MustParseAddr(text)] = struct{}{}
	}
	return n
}
