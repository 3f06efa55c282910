package ipvs

import (
	"fmt"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Keys lists the virtual servers of ours that the kernel is believed to hold.
func (t *Table) Keys() []state.ServerKey {
	var keys []state.ServerKey
	for k, s := range t.have {
		if !s.foreign {
			keys = append(keys, k)
		}
	}
	slices.SortFunc(keys, state.ServerKey.Compare)
	return keys
}

// Open tells whether a virtual server of ours has established connections.
func (t *Table) Open(key state.ServerKey) (bool, error) {
	have := t.have[key]
	if have == nil || have.foreign || len(have.reals) == 0 {
		return false, nil
	}
	list, err := t.kernel.Reals(key)
	if gone(err) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("list real servers of %s: %w", key, err)
	}
	return slices.ContainsFunc(list, func(r Real) bool { return r.Active > 0 }), nil
}

// Empty tells whether a virtual server has no real server left, or is not
// there at all.
func (t *Table) Empty(key state.ServerKey) bool {
	have := t.have[key]
	return have == nil || len(have.reals) == 0
}

// Draining lists the virtual servers with real servers that drain, the number
// of those, and how long to wait before looking at them again: the look comes
// soon after a drain began and seldom for one that lasts.
func (t *Table) Draining() (keys []state.ServerKey, reals int, wait time.Duration) {
	now := t.config.Now()
	wait = max(t.config.Limits.Gone, t.config.Limits.Settle)
	for key, n := range t.draining {
		keys = append(keys, key)
		reals += n
		for _, r := range t.have[key].reals {
			if !r.since.IsZero() {
				age := now.Sub(r.since)
				wait = min(wait, max(t.config.Limits.Settle, min(age/4, r.limit-age)))
			}
		}
	}
	slices.SortFunc(keys, state.ServerKey.Compare)
	return keys, reals, wait
}

// Glance checks that one virtual server of ours is still there, another one
// each time. Somebody who clears the table takes them all.
func (t *Table) Glance() (intact bool, err error) {
	for key, s := range t.have {
		if s.foreign {
			continue
		}
		there, err := t.kernel.Has(key)
		if err != nil {
			return false, fmt.Errorf("look up virtual server %s: %w", key, err)
		}
		return there, nil
	}
	return true, nil
}

// Counts returns the numbers of virtual and real servers of ours.
func (t *Table) Counts() (servers, reals int) { return len(t.have) - t.foreign, t.reals }

func sortedKeys(m map[state.ServerKey]struct{}) []state.ServerKey {
	keys := make([]state.ServerKey, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, state.ServerKey.Compare)
	return keys
}
