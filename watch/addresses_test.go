package watch

import (
	"context"
	"errors"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
)

// fakeKernel holds a list of addresses and the channel of one subscription.
type fakeKernel struct {
	addrs   []netip.Addr
	listErr error
	lists   int
	events  chan bool
	refuse  int // how many subscriptions fail
	opened  int
	stopped int
}

func (f *fakeKernel) list() ([]netip.Addr, error) {
	f.lists++
	return slices.Clone(f.addrs), f.listErr
}

func (f *fakeKernel) subscribe() (<-chan bool, func(), error) {
	if f.refuse > 0 {
		f.refuse--
		return nil, nil, errors.New("refused")
	}
	f.opened++
	f.events = make(chan bool)
	return f.events, func() { f.stopped++ }, nil
}

func addrs(texts ...string) []netip.Addr {
	var out []netip.Addr
	for _, t := range texts {
		out = append(out, netip.MustParseAddr(t))
	}
	return out
}

func TestReadAddresses(t *testing.T) {
	k := &fakeKernel{addrs: addrs("192.0.2.7", "127.0.0.1", "::1", "fe80::1", "2001:db8::7", "224.0.0.1", "ff02::1",
		"192.0.2.7", "::ffff:192.0.2.8", "169.254.20.10", "10.0.0.9")}
	got, err := readAddresses(k)
	if err != nil {
		t.Fatal(err)
	}
	if want := addrs("10.0.0.9", "169.254.20.10", "192.0.2.7", "192.0.2.8", "2001:db8::7"); !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}

// startWatch runs a watch on k in a bubble and returns its sink.
func startWatch(t *testing.T, k *fakeKernel) *recorder {
	ctx, cancel := context.WithCancel(t.Context())
	sink := newRecorder()
	w := addressWatch{kernel: k, device: "kube-ipvs0", sink: sink, log: zap.NewNop()}
	done := make(chan error)
	go func() { done <- w.run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("run: %v", err)
		}
		if k.opened != k.stopped {
			t.Errorf("%d subscriptions opened, %d stopped", k.opened, k.stopped)
		}
	})
	synctest.Wait()
	return sink
}

func TestWatchAddresses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{}
		sink := startWatch(t, k)
		expect(t, sink.take(), "addresses []")

		t.Log("a change is handed over once, however many events there are")
		k.addrs = addrs("192.0.2.1")
		for range 1000 {
			k.events <- false
		}
		time.Sleep(time.Second)
		expect(t, sink.take(), "addresses [192.0.2.1]")
		if k.lists != 2 {
			t.Errorf("the list was read %d times, want 2", k.lists)
		}

		t.Log("events without a change of the list cause no call")
		k.events <- false
		time.Sleep(time.Second)
		expect(t, sink.take())

		t.Log("events on the own device disturb")
		k.events <- true
		k.events <- false
		k.events <- true
		time.Sleep(time.Second)
		expect(t, sink.take(), "disturbed")

		t.Log("what happens while the subscription is broken is not missed")
		k.addrs = addrs("192.0.2.1", "192.0.2.2")
		k.refuse = 3
		close(k.events)
		time.Sleep(time.Minute)
		expect(t, sink.take(), "disturbed", "addresses [192.0.2.1 192.0.2.2]")

		t.Log("a list that cannot be read is tried again")
		k.addrs, k.listErr = addrs("192.0.2.2"), errors.New("interrupted")
		k.events <- false
		time.Sleep(time.Second)
		expect(t, sink.take())
		k.listErr = nil
		time.Sleep(time.Minute)
		expect(t, sink.take(), "addresses [192.0.2.2]")
	})
}

func TestWatchAddressesOfAStorm(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		k := &fakeKernel{}
		sink := startWatch(t, k)
		for range 1000 {
			k.events <- true
			time.Sleep(time.Millisecond)
		}
		if n := len(sink.take()); n > 25 {
			t.Errorf("%d calls in a second, want at most one in %s", n, addressDelay)
		}
		time.Sleep(time.Second)
	})
}

func TestWatchAddressesFailsAtTheStart(t *testing.T) {
	for name, k := range map[string]*fakeKernel{
		"no subscription": {refuse: 1},
		"no list":         {listErr: errors.New("refused")},
	} {
		t.Run(name, func(t *testing.T) {
			w := addressWatch{kernel: k, sink: newRecorder(), log: zap.NewNop()}
			if err := w.run(t.Context()); err == nil {
				t.Error("no error")
			}
			if k.opened != k.stopped {
				t.Error("the subscription was not stopped")
			}
		})
	}
}
