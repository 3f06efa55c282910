package ipset

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// batchSize is the number of entries in one message. The longest entry takes
// 96 bytes, and the attribute that holds them all at most 65,535.
const batchSize = 400

// maxErrors is the number of refused entries of one set that are reported one
// by one.
const maxErrors = 8

// run carries out operations, in order. Operations on a set follow its fate:
// after a failed create nothing is added, after a failed add nothing swapped.
func (t *Table) run(ctx context.Context, ops []op) ([]state.Op, error) {
	r := runner{table: t, broken: map[string]bool{}, refused: map[string]int{}, lost: map[string]bool{}, untold: map[string][]state.ServerKey{}}
	for len(ops) > 0 {
		if err := ctx.Err(); err != nil {
			r.errs = append(r.errs, fmt.Errorf("change ipsets: %w", err))
			break
		}
		n := batch(ops)
		r.step(ops[:n])
		ops = ops[n:]
	}
	return r.done, r.err()
}

// batch returns how many operations go into one message.
func batch(ops []op) int {
	first := ops[0]
	if first.verb != verbAdd && first.verb != verbDel {
		return 1
	}
	n := 1
	for n < min(len(ops), batchSize) && ops[n].verb == first.verb && ops[n].set == first.set {
		n++
	}
	return n
}

// runner is the state of one run.
type runner struct {
	table *Table
	done  []state.Op
	errs  []error
	// broken sets are those that could not be created, swapped or destroyed.
	broken map[string]bool
	// refused counts the entries of each set that failed one by one, lost says
	// which sets lack entries because a whole message failed.
	refused map[string]int
	lost    map[string]bool
	// untold are the keys of the refused entries that are not reported one by
	// one.
	untold map[string][]state.ServerKey
}

func (r *runner) step(ops []op) {
	switch o := ops[0]; o.verb {
	case verbAdd, verbDel:
		if !r.broken[o.set] {
			r.entries(ops)
		}
	case verbSwap:
		if r.broken[o.set] || r.broken[o.with] || r.refused[o.set] > 0 || r.lost[o.set] {
			r.broken[o.set] = true
			return
		}
		r.set(o)
	default:
		if !r.broken[o.set] {
			r.set(o)
		}
	}
}

// set carries out an operation on whole sets.
func (r *runner) set(o op) {
	if err := r.table.apply(o); err != nil {
		r.broken[o.set] = true
		err = fmt.Errorf("ipset %s: %w", o, err)
		if o.verb == verbDestroy {
			err = &state.KeyError{Err: err} // a set too many is in nobody's way
		}
		r.errs = append(r.errs, err)
		return
	}
	r.done = append(r.done, o)
}

// apply carries out an operation on whole sets and notes it in the belief.
func (t *Table) apply(o op) error {
	switch o.verb {
	case verbCreate:
		if err := t.kernel.create(o.set, o.spec); err != nil {
			return err
		}
		t.sets[o.set] = &held{o.spec, map[state.Entry]uint32{}}
	case verbSwap:
		if err := t.kernel.swap(o.set, o.with); err != nil {
			return err
		}
		t.sets[o.set], t.sets[o.with] = t.sets[o.with], t.sets[o.set]
	case verbDestroy:
		if err := t.kernel.destroy(o.set); err != nil && !errors.Is(err, unix.ENOENT) {
			return err
		}
		delete(t.sets, o.set)
	}
	return nil
}

// entries carries out a batch of adds or dels on one set. The kernel stops at
// the first entry that it refuses; the others are sent again without it.
func (r *runner) entries(ops []op) {
	ops = r.checked(ops)
	for len(ops) > 0 {
		err := r.table.send(ops)
		refusal, one := errors.AsType[*refusal](err)
		switch {
		case err == nil:
			r.noted(ops)
			return
		case one:
			r.noted(ops[:refusal.index])
			r.refuse(ops[refusal.index], refusal.err)
			ops = ops[refusal.index+1:]
		default:
			r.lost[ops[0].set] = true
			r.errs = append(r.errs, fmt.Errorf("ipset %s%s: %w", ops[0], others(ops), err))
			return
		}
	}
}

// checked returns the operations whose entries fit their set.
func (r *runner) checked(ops []op) []op {
	h := r.table.sets[ops[0].set]
	if ops[0].verb == verbDel || h == nil {
		return ops
	}
	var good []op
	for _, o := range ops {
		if err := h.check(o.entry); err != nil {
			r.refuse(o, err)
			continue
		}
		good = append(good, o)
	}
	return good
}

// send hands a batch of adds or dels on one set to the kernel.
func (t *Table) send(ops []op) error {
	members := make([]member, len(ops))
	for i, o := range ops {
		members[i] = o.member
	}
	if ops[0].verb == verbAdd {
		return t.kernel.add(ops[0].set, members)
	}
	if err := t.kernel.del(ops[0].set, members); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}

// noted writes operations that succeeded into the belief and the report.
func (r *runner) noted(ops []op) {
	for _, o := range ops {
		if h := r.table.sets[o.set]; h != nil && o.verb == verbAdd {
			h.entries[o.entry] = o.mark
		} else if h != nil {
			delete(h.entries, o.entry)
		}
		r.done = append(r.done, o)
	}
}

// refuse notes that one entry failed.
func (r *runner) refuse(o op, err error) {
	r.refused[o.set]++
	if r.refused[o.set] > maxErrors {
		r.untold[o.set] = append(r.untold[o.set], o.entry.Key())
		return
	}
	r.errs = append(r.errs, state.FailKey(o.entry.Key(), fmt.Errorf("ipset %s: %w", o, err)))
}

// err joins what went wrong.
func (r *runner) err() error {
	errs := r.errs
	for _, set := range slices.Sorted(maps.Keys(r.untold)) {
		keys := r.untold[set]
		errs = append(errs, &state.KeyError{Keys: keys, Err: fmt.Errorf("ipset %s: %d more entries failed", set, len(keys))})
	}
	return errors.Join(errs...)
}

// others says how many more operations a batch holds.
func others(ops []op) string {
	if len(ops) == 1 {
		return ""
	}
	return fmt.Sprintf(" and %d other entries", len(ops)-1)
}
