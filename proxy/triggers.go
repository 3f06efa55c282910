package proxy

import (
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// triggers collects the times at which the changes happened that led to new
// slices, from the annotation endpoints.kubernetes.io/last-change-trigger-time,
// so that the delay until they are programmed can be measured.
type triggers struct {
	since time.Time // what changed before the proxy ran tells nothing
	times map[state.Family][]time.Time
	last  map[state.Name]time.Time
}

func (t *triggers) note(b batch) {
	if t.last == nil {
		t.last = map[state.Name]time.Time{}
	}
	for name, s := range b.slices {
		if s == nil {
			delete(t.last, name)
			continue
		}
		if s.Triggered.Before(t.since) || s.Triggered.Equal(t.last[name]) {
			continue
		}
		t.last[name] = s.Triggered
		if t.times == nil {
			t.times = map[state.Family][]time.Time{}
		}
		t.times[s.Family] = append(t.times[s.Family], s.Triggered)
	}
}

// take returns what was collected and starts anew.
func (t *triggers) take() map[state.Family][]time.Time {
	times := t.times
	t.times = nil
	return times
}
