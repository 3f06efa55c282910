// Package iptables keeps a few constant rules in the kernel: chains whose
// names begin with KIPVS- and one jump to each from a built-in chain, told
// from other people's rules by its comment. It decides nothing about Services,
// starts no process for an ordinary change and never touches a chain or rule
// that is not the project's.
package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// ErrLocked is returned, wrapped, when another process held the xtables lock
// for longer than LockWait.
var ErrLocked = errors.New("the xtables lock is held by another process")

// freshFor is how long what Probe read serves a Read.
const freshFor = 5 * time.Second

// Table is the layer for iptables rules of both families. It is not safe for
// use by several goroutines.
type Table struct {
	kernel kernel
	have   belief
	// printed holds, where the program prints a chain in another form than it
	// was given, the form it was given and the one it prints.
	printed map[chainID]printing
	// stale says that have may differ from the kernel; fresh is when Probe read
	// it.
	stale bool
	fresh time.Time
	now   func() time.Time
	// elsewhere removes what another flavour holds of ours; nil if it is nothing.
	elsewhere func(context.Context) ([]state.Op, error)
}

var _ state.Layer = (*Table)(nil)

// New returns a Table over a kernel: a Fake, or the real one that Open uses.
func New(k kernel) *Table {
	return &Table{kernel: k, have: belief{}, printed: map[chainID]printing{}, stale: true, now: time.Now}
}

// Open returns a Table that runs the programs of a flavour (see Detect).
func Open(f Flavour) *Table {
	t := New(openPrograms(f))
	if f.elsewhere {
		t.elsewhere = func(ctx context.Context) ([]state.Op, error) { return Remove(ctx, f.Name) }
	}
	return t
}

// HasRandomFully reports whether the programs know MASQUERADE's option
// --random-fully.
func (t *Table) HasRandomFully() bool { return t.kernel.randomFully() }

// Read learns which chains and jumps of ours the kernel holds. It starts one
// process for each family.
func (t *Table) Read(ctx context.Context) error {
	fresh := t.now().Sub(t.fresh) < freshFor
	t.fresh = time.Time{}
	if fresh {
		return nil
	}
	t.stale = true
	have := belief{}
	for _, f := range t.kernel.families() {
		if err := t.save(ctx, f, have); err != nil {
			return err
		}
	}
	t.have, t.stale = have, false
	return nil
}

// Ensure rewrites each table in which a chain of ours is missing or differs
// and inserts missing jumps at the head of their chains, in one atomic step for
// each table and one process for each family. A jump that is there is left
// wherever it stands. It does nothing unless the change says All: rules do not
// depend on Services.
func (t *Table) Ensure(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	if !change.All {
		return nil, nil
	}
	if err := t.refresh(ctx); err != nil {
		return nil, err
	}
	var (
		ops  []state.Op
		errs []error
	)
	missing, wanted := split(want.Rules, t.kernel.families())
	for _, f := range missing {
		errs = append(errs, fmt.Errorf("%s rules are wanted, but this node has no working %s", f, command(f)))
	}
	for _, f := range t.kernel.families() {
		done, err := t.write(ctx, f, planEdits(f, wanted, t.have, t.printed))
		ops = append(ops, done...)
		errs = append(errs, err)
	}
	return ops, errors.Join(errs...)
}

// Prune deletes jumps of ours that are not wanted, and second copies of those
// that are, and after them the chains of ours that are not wanted, once also
// those in another flavour. It does nothing unless the change says All.
func (t *Table) Prune(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	if !change.All {
		return nil, nil
	}
	if err := t.refresh(ctx); err != nil {
		return nil, err
	}
	var (
		ops  []state.Op
		errs []error
	)
	for _, del := range planDeletes(want.Rules, t.have) {
		if err := t.kernel.delete(ctx, del.Family, del.Name, del.jump.From, del.jump.words()); err != nil {
			t.stale = true
			errs = append(errs, fmt.Errorf("deleting the jump from %s to %s in %s: %w", del.jump.From, del.jump.To, del.tableID, err))
			continue
		}
		t.have.at(del.tableID).dropJump(del.jump)
		ops = append(ops, del)
	}
	for _, d := range planDrops(want.Rules, t.have) {
		if err := t.kernel.restore(ctx, d.Family, d.script()); err != nil {
			t.stale = true
			errs = append(errs, fmt.Errorf("deleting chains %v of %s (does a rule of somebody else still jump to one?): %w", d.chains, d.tableID, err))
			continue
		}
		for _, name := range d.chains {
			delete(t.have.at(d.tableID).chains, name)
			ops = append(ops, drop{d.tableID, name})
		}
	}
	if t.elsewhere != nil {
		done, err := t.elsewhere(ctx)
		ops = append(ops, done...)
		errs = append(errs, err)
		if err == nil {
			t.elsewhere = nil
		}
	}
	return ops, errors.Join(errs...)
}

// refresh reads unless what we believe is still good.
func (t *Table) refresh(ctx context.Context) error {
	if !t.stale {
		return nil
	}
	return t.Read(ctx)
}

// save replaces what have says of a family by what the kernel holds.
func (t *Table) save(ctx context.Context, f state.Family, have belief) error {
	text, err := t.kernel.save(ctx, f)
	if err != nil {
		return fmt.Errorf("reading the %s rules: %w", f, err)
	}
	have.replace(f, parseSave(text))
	return nil
}

// write carries out a family's edits in one process and reads the result back.
// If the process fails each table is tried by itself, so that one bad table
// does not hold up the others.
func (t *Table) write(ctx context.Context, f state.Family, edits []edit) ([]state.Op, error) {
	if len(edits) == 0 {
		return nil, nil
	}
	var errs []error
	if err := t.kernel.restore(ctx, f, script(edits...)); err != nil {
		t.stale = true
		edits, err = t.writeEach(ctx, f, edits, err)
		errs = append(errs, err)
	}
	var ops []state.Op
	for _, e := range edits {
		ops = append(ops, e.ops()...)
	}
	if err := t.save(ctx, f, t.have); err != nil {
		t.stale = true
		return ops, errors.Join(append(errs, err)...)
	}
	for _, e := range edits {
		t.learn(e)
	}
	return ops, errors.Join(errs...)
}

// writeEach carries out edits one by one after carrying them out together
// failed with err, and returns those that succeeded.
func (t *Table) writeEach(ctx context.Context, f state.Family, edits []edit, err error) ([]edit, error) {
	if len(edits) == 1 || errors.Is(err, ErrLocked) || ctx.Err() != nil {
		return nil, fmt.Errorf("writing %s: %w", tables(edits), err)
	}
	var (
		done []edit
		errs []error
	)
	for _, e := range edits {
		if err := t.kernel.restore(ctx, f, script(e)); err != nil {
			errs = append(errs, fmt.Errorf("writing %s: %w", e.tableID, err))
			continue
		}
		done = append(done, e)
	}
	return done, errors.Join(errs...)
}

// learn compares chains just written with the way the program prints it. A
// chain with the same number of rules in another notation is right, and must
// not be written again at every sync.
func (t *Table) learn(e edit) {
	for _, c := range e.chains {
		id := chainID{e.tableID, c.Name}
		got, ok := t.have.at(e.tableID).chains[c.Name]
		delete(t.printed, id)
		if ok && !slices.Equal(got, c.Rules) && len(got) == len(c.Rules) {
			t.printed[id] = printing{given: c.Rules, printed: got}
		}
	}
}
