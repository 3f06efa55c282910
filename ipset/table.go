// Package ipset keeps the node's ipsets in step with what is wanted: the
// layer of sets, read and changed by set and by entry. It never looks at rules
// and never touches a set whose name is not ours.
//
// It speaks netlink itself, through the sockets of vishvananda/netlink: that
// library's ipset calls send one entry a message, cannot set a packet mark
// (skbinfo), cannot ask for headers alone, and take a set which the kernel
// reports in several messages for several sets.
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

// Table is the layer of ipsets. Its methods are for one goroutine, except
// Headers.
type Table struct {
	kernel kernel
	sets   map[string]*held
}

var _ state.Layer = (*Table)(nil)

// Open returns a Table over the kernel's ipsets in the network namespace of
// the calling thread.
func Open() (*Table, error) {
	k, err := open()
	if err != nil {
		return nil, fmt.Errorf("open ipset: %w", explain(err, "nfnetlink"))
	}
	return New(k), nil
}

// New returns a Table over a kernel, such as a Fake.
func New(k kernel) *Table { return &Table{kernel: k, sets: map[string]*held{}} }

// Close releases the Table's socket. The sets stay.
func (t *Table) Close() { t.kernel.close() }

// Header is what the kernel says of a set without its entries.
type Header struct {
	Elements int
	// References counts the rules and sets that name the set.
	References int
}

// Headers asks the kernel for the headers of our sets. The cost does not
// depend on the number of entries sent; belief is not changed. It may be called
// from any goroutine.
func (t *Table) Headers(ctx context.Context) (map[string]Header, error) {
	if err := ctx.Err(); err != nil {
		return nil, err
	}
	all, err := t.kernel.headers()
	if err != nil {
		return nil, fmt.Errorf("list ipset headers: %w", err)
	}
	found := map[string]Header{}
	for name, h := range all {
		if Ours(name) {
			found[name] = h.Header
		}
	}
	return found, nil
}

// Entries returns the entries, with their marks, that we believe a set to
// hold. The caller must not change them.
func (t *Table) Entries(set string) map[state.Entry]uint32 {
	if h := t.sets[set]; h != nil {
		return h.entries
	}
	return nil
}

// Read learns what our sets hold. After an error the belief is as before.
func (t *Table) Read(ctx context.Context) error {
	all, err := t.kernel.headers()
	if err != nil {
		return fmt.Errorf("list ipset headers: %w", err)
	}
	sets := map[string]*held{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if !Ours(name) {
			continue
		}
		if err := ctx.Err(); err != nil {
			return err
		}
		entries, err := t.kernel.entries(name)
		if errors.Is(err, unix.ENOENT) {
			continue
		}
		if err != nil {
			return fmt.Errorf("list ipset %s: %w", name, err)
		}
		sets[name] = &held{all[name].spec, entries}
	}
	t.sets = sets
	return nil
}

// Ensure creates the sets and entries that are missing. A set of our name that
// cannot serve is replaced; where its type differs and a rule names it, that
// fails until the rule is gone.
func (t *Table) Ensure(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	var names error
	if change.All {
		names = checkNames(want)
	}
	done, err := t.run(ctx, planEnsure(want, t.sets, change))
	return done, errors.Join(names, err)
}

// Prune deletes the entries that are not wanted and, where the change says
// All, destroys the sets that are not wanted.
func (t *Table) Prune(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	return t.run(ctx, planPrune(want, t.sets, change))
}

// Destroy removes every set of ours. Sets that a rule names stay, with an
// error.
func (t *Table) Destroy(ctx context.Context) ([]state.Op, error) {
	if err := t.Read(ctx); err != nil {
		return nil, err
	}
	return t.Prune(ctx, state.NewNode(), &state.Change{All: true})
}

// Glance returns the same as References, and whether each set that we know has
// as many entries as we believe.
func (t *Table) Glance(ctx context.Context) (references map[string]int, intact bool, err error) {
	headers, err := t.Headers(ctx)
	if err != nil {
		return nil, false, err
	}
	references, intact = map[string]int{}, true
	for name, h := range headers {
		references[name] = h.References
	}
	for name, h := range t.sets {
		if now, there := headers[name]; !there || now.Elements != len(h.entries) {
			intact = false
		}
	}
	return references, intact, nil
}

// References counts, for each set of ours, the rules that name it.
func (t *Table) References(ctx context.Context) (map[string]int, error) {
	headers, err := t.Headers(ctx)
	if err != nil {
		return nil, err
	}
	refs := make(map[string]int, len(headers))
	for name, h := range headers {
		refs[name] = h.References
	}
	return refs, nil
}
