package watch

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	// addressDelay is how long events are gathered before the list is read.
	addressDelay = 50 * time.Millisecond
	// The pause before a broken subscription is renewed doubles from the first
	// to the second.
	subscribeRetryMin = 100 * time.Millisecond
	subscribeRetryMax = 10 * time.Second
)

// Addresses returns the addresses on this node's devices, sorted, without
// loopback, IPv6 link-local and multicast ones and without those of the given
// device, which is the proxy's own and need not exist.
func Addresses(device string) ([]netip.Addr, error) {
	return readAddresses(&rtnetlink{device: device})
}

// WatchAddresses hands over the list that Addresses returns, at the start and
// whenever it has changed, and says Disturbed when anything happens to the
// given device or its addresses. It returns nil when the context ends, and an
// error only if the kernel cannot be watched at all. It asks for the addresses
// of the network namespace of the goroutine that calls it.
func WatchAddresses(ctx context.Context, device string, sink state.Sink, log *zap.Logger) error {
	w := addressWatch{kernel: &rtnetlink{device: device}, device: device, sink: sink, log: log}
	return w.run(ctx)
}

// addressKernel is what the watch needs of the kernel.
type addressKernel interface {
	// list returns the addresses of all devices but the proxy's own.
	list() ([]netip.Addr, error)
	// subscribe returns an event for each change of an address, or of the
	// proxy's own device: true for what concerns that device. The channel is
	// closed when events may have been lost. stop ends the subscription.
	subscribe() (events <-chan bool, stop func(), err error)
}

// readAddresses returns the node's own addresses, sorted and each once.
func readAddresses(k addressKernel) ([]netip.Addr, error) {
	all, err := k.list()
	if err != nil {
		return nil, err
	}
	addrs := []netip.Addr{}
	for _, a := range all {
		a = a.Unmap().WithZone("")
		if a.IsLoopback() || a.IsMulticast() || a.IsUnspecified() || a.Is6() && a.IsLinkLocalUnicast() {
			continue
		}
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.Addr.Compare)
	return slices.Compact(addrs), nil
}

type addressWatch struct {
	kernel addressKernel
	device string
	sink   state.Sink
	log    *zap.Logger
	last   []netip.Addr // nil before the first list
}

func (w *addressWatch) run(ctx context.Context) error {
	events, stop, err := w.kernel.subscribe()
	if err != nil {
		return err
	}
	// The list comes after the subscription, so that nothing happens unseen
	// between the two.
	if err := w.update(); err != nil {
		stop()
		return err
	}
	pause := subscribeRetryMin
	for {
		began := time.Now()
		w.follow(ctx, events)
		stop()
		if ctx.Err() != nil {
			return nil
		}
		if time.Since(began) > subscribeRetryMax {
			pause = subscribeRetryMin
		}
		w.log.Warn("lost events about addresses, subscribing again", zap.Duration("pause", pause))
		events, stop = w.resubscribe(ctx, &pause)
		if events == nil {
			return nil
		}
		w.refresh(true)
	}
}

// follow handles events until there are no more.
func (w *addressWatch) follow(ctx context.Context, events <-chan bool) {
	var due <-chan time.Time
	own, retry := false, addressDelay
	for {
		select {
		case <-ctx.Done():
			return
		case mine, ok := <-events:
			if !ok {
				return
			}
			own = own || mine
			if due == nil {
				due = time.After(addressDelay)
			}
		case <-due:
			due = nil
			if w.refresh(own) {
				retry = addressDelay
			} else {
				retry = min(2*retry, subscribeRetryMax)
				due = time.After(retry)
			}
			own = false
		}
	}
}

// refresh reads the list again, reports whether it could, and passes on
// whether the own device was touched.
func (w *addressWatch) refresh(own bool) bool {
	if own {
		w.sink.Disturbed()
	}
	err := w.update()
	if err != nil {
		w.log.Warn("reading the node's addresses failed, keeping the last list", zap.Error(err))
	}
	return err == nil
}

// update hands over the list if it differs from the last one.
func (w *addressWatch) update() error {
	addrs, err := readAddresses(w.kernel)
	if err != nil {
		return fmt.Errorf("listing the node's addresses: %w", err)
	}
	if w.last != nil && slices.Equal(addrs, w.last) {
		return nil
	}
	w.last = addrs
	w.sink.SetAddresses(slices.Clone(addrs))
	return nil
}

// resubscribe tries until it succeeds, after a pause that doubles each time; it
// returns nil when the context ends.
func (w *addressWatch) resubscribe(ctx context.Context, pause *time.Duration) (<-chan bool, func()) {
	for sleep(ctx, *pause) {
		*pause = min(2**pause, subscribeRetryMax)
		events, stop, err := w.kernel.subscribe()
		if err == nil {
			return events, stop
		}
		w.log.Warn("subscribing to address events failed", zap.Error(err))
	}
	return nil, nil
}
