package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// recorder is a sink that writes down its calls.
type recorder struct {
	mu    sync.Mutex
	calls []string
	news  chan struct{}
}

func newRecorder() *recorder {
	return &recorder{news: make(chan struct{}, 1)}
}

func (r *recorder) add(format string, args ...any) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.calls = append(r.calls, fmt.Sprintf(format, args...))
	select {
	case r.news <- struct{}{}:
	default:
	}
}

func (r *recorder) SetService(s *state.Service) {
	r.add("set service %s %v", s.Name, s.ClusterIPs)
}
func (r *recorder) DeleteService(n state.Name) { r.add("delete service %s", n) }
func (r *recorder) SetSlice(s *state.Slice)    { r.add("set slice %s of %s", s.Name, s.Service) }
func (r *recorder) DeleteSlice(n state.Name)   { r.add("delete slice %s", n) }
func (r *recorder) SetNode(n *state.ClusterNode) {
	r.add("set node %s %v", n.Name, n.Addresses)
}
func (r *recorder) DeleteNode(name string)      { r.add("delete node %s", name) }
func (r *recorder) SetAddresses(a []netip.Addr) { r.add("addresses %v", a) }
func (r *recorder) Synced()                     { r.add("synced") }
func (r *recorder) Disturbed()                  { r.add("disturbed") }

// take returns the calls since the last take.
func (r *recorder) take() []string {
	r.mu.Lock()
	defer r.mu.Unlock()
	calls := r.calls
	r.calls = nil
	return calls
}

// await waits until the calls since the last take contain want, and takes them.
func (r *recorder) await(t *testing.T, want string) []string {
	t.Helper()
	deadline := time.After(10 * time.Second)
	for {
		r.mu.Lock()
		found := slices.Contains(r.calls, want)
		r.mu.Unlock()
		if found {
			return r.take()
		}
		select {
		case <-r.news:
		case <-deadline:
			t.Fatalf("no call %q among:\n%s", want, strings.Join(r.take(), "\n"))
		}
	}
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Fatalf("calls:\n%s\nwant:\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}
