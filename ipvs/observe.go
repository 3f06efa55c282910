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

// glanceAt is how many virtual servers a glance looks at.
const glanceAt = 32

// Glance looks at some virtual servers of ours, others each time, and tells
// whether they and their real servers are there with their weights. On a small
// node that is all of them; on a large one it at least notices that the table
// was cleared.
func (t *Table) Glance() (intact bool, err error) {
	looked := 0
	for key, have := range t.have {
		if have.foreign {
			continue
		}
		if looked++; looked > glanceAt {
			break
		}
		if intact, err := t.intact(key, have); !intact || err != nil {
			return false, err
		}
	}
	return true, nil
}

func (t *Table) intact(key state.ServerKey, have *server) (bool, error) {
	there, err := t.kernel.Has(key)
	if err != nil {
		return false, fmt.Errorf("look up virtual server %s: %w", key, err)
	}
	if !there {
		return false, nil
	}
	list, err := t.kernel.Reals(key)
	if err != nil {
		return false, fmt.Errorf("list real servers of %s: %w", key, err)
	}
	return have.matches(list), nil
}

// matches tells whether the kernel's real servers are those that we know.
func (s *server) matches(list []Real) bool {
	if len(list) != len(s.reals) {
		return false
	}
	return !slices.ContainsFunc(list, func(r Real) bool {
		known := s.reals[r.At]
		return known == nil || known.weight != r.Weight || known.forward != r.Forward
	})
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
