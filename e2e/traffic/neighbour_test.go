package traffic

import (
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic/traffictest"
)

// TestCallOfASilentNeighbour calls addresses of a link where nobody answers ARP. Three seconds after the first try
// the kernel tells each caller by an ICMP error of its own, which must not be taken for one from the wire. A call that
// begins later than the first is the one that hears of it.
func TestCallOfASilentNeighbour(t *testing.T) {
	in := traffictest.New(t)
	for _, line := range []string{
		"ip link add v0 type veth peer name v1", "ip link set v0 up", "ip link set v1 up",
		"ip addr add 192.0.2.1/24 dev v0", "ip -6 addr add 2001:db8::1/64 dev v0 nodad",
	} {
		command(t, in, line)
	}
	client := NewClient(in)
	var calls sync.WaitGroup
	for _, proto := range []Proto{TCP, UDP} {
		for _, to := range []string{"192.0.2.8:80", "[2001:db8::8]:80"} {
			for _, delay := range []time.Duration{0, 1500 * time.Millisecond} {
				calls.Go(func() {
					time.Sleep(delay)
					got, err := client.Call(target(proto, to))
					if err != nil || got.Result != Timeout {
						t.Errorf("%s to %s after %s: want timeout, have %v, %v", proto, to, delay, got, err)
					}
				})
			}
		}
	}
	calls.Wait()
}
