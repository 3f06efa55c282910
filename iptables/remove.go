package iptables

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Remove deletes every jump and chain of ours from every flavour of iptables
// on this node except the one named keep, and returns what it deleted. With
// keep empty it undoes all that the package ever did; with the flavour in use
// it cleans up after a change of flavour. It does nothing where there is
// nothing.
func Remove(ctx context.Context, keep string) ([]state.Op, error) {
	var (
		ops  []state.Op
		errs []error
	)
	for _, name := range removable(ctx, keep) {
		// A flavour that does not work can hold nothing.
		s := examine(ctx, name)
		if len(s.Families) == 0 {
			continue
		}
		if s.Families[0] == state.IPv4 {
			_ = s.add(ctx, state.IPv6)
		}
		done, err := Open(s.Flavour).RemoveAll(ctx)
		ops = append(ops, done...)
		if err != nil {
			errs = append(errs, fmt.Errorf("removing the rules of %s: %w", name, err))
		}
	}
	return ops, errors.Join(errs...)
}

// removable returns the flavours to clean. The plain program is another name
// of the flavour own, and kept if that is.
func removable(ctx context.Context, keep string) []string {
	names := []string{NFT, Legacy, Plain}
	if keep == "" {
		return names
	}
	kept := []string{keep}
	switch {
	case keep == Plain:
		kept = append(kept, own(ctx))
	case keep == own(ctx):
		kept = append(kept, Plain)
	}
	return slices.DeleteFunc(names, func(n string) bool { return slices.Contains(kept, n) })
}

// RemoveAll deletes every jump and chain of ours that this Table's programs
// see.
func (t *Table) RemoveAll(ctx context.Context) ([]state.Op, error) {
	if err := t.Read(ctx); err != nil {
		return nil, err
	}
	return t.Prune(ctx, state.NewNode(), &state.Change{All: true})
}
