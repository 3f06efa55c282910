package watch

import (
	"context"
	"runtime"
	"testing"

	"github.com/vishvananda/netlink"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// privateNetwork runs f on a thread of its own in a new network namespace.
func privateNetwork(t *testing.T, f func()) {
	t.Helper()
	failed := make(chan error)
	go func() {
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
			failed <- err
			return
		}
		close(failed)
		f()
	}()
	if err := <-failed; err != nil {
		t.Skipf("cannot make a network namespace (needs root): %v", err)
	}
}

func TestKernelAddresses(t *testing.T) {
	const device = "kube-ipvs0"
	ctx, cancel := context.WithCancel(t.Context())
	sink := newRecorder()
	ready, done := make(chan *netlink.Handle), make(chan error, 1)
	privateNetwork(t, func() {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			t.Error(err)
		}
		ready <- h
		done <- WatchAddresses(ctx, device, sink, zap.NewNop())
	})
	h := <-ready
	if h == nil {
		t.FailNow()
	}
	defer h.Close()
	expect(t, sink.await(t, "addresses []"), "addresses []")

	eth := addDevice(t, h, "eth0")
	addAddress(t, h, eth, "192.0.2.1/24")
	sink.await(t, "addresses [192.0.2.1]")

	own := addDevice(t, h, device)
	sink.await(t, "disturbed")
	addAddress(t, h, own, "10.96.0.1/32")
	sink.await(t, "disturbed")

	addAddress(t, h, eth, "2001:db8::1/64")
	calls := sink.await(t, "addresses [192.0.2.1 2001:db8::1]")
	for _, c := range calls {
		if c != "addresses [192.0.2.1 2001:db8::1]" {
			t.Errorf("unexpected call %q", c)
		}
	}

	must(t, h.LinkDel(own))
	sink.await(t, "disturbed")
	must(t, h.LinkDel(eth))
	sink.await(t, "addresses []")

	t.Log("a device made again under the name has another index")
	own = addDevice(t, h, device)
	addAddress(t, h, own, "10.96.0.2/32")
	sink.await(t, "disturbed")
	eth = addDevice(t, h, "eth1")
	addAddress(t, h, eth, "192.0.2.2/24")
	sink.await(t, "addresses [192.0.2.2]")

	cancel()
	if err := <-done; err != nil {
		t.Errorf("WatchAddresses: %v", err)
	}
}

// addDevice makes a bridge, which more kernels can than a dummy device; the
// watch knows the proxy's device by its name alone.
func addDevice(t *testing.T, h *netlink.Handle, name string) netlink.Link {
	t.Helper()
	must(t, h.LinkAdd(&netlink.Bridge{LinkAttrs: netlink.LinkAttrs{Name: name}}))
	link, err := h.LinkByName(name)
	must(t, err)
	return link
}

func addAddress(t *testing.T, h *netlink.Handle, link netlink.Link, text string) {
	t.Helper()
	addr, err := netlink.ParseAddr(text)
	must(t, err)
	must(t, h.AddrAdd(link, addr))
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}
