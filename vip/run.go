package vip

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// maxErrors is the number of addresses whose failure is reported one by one.
const maxErrors = 8

// run carries out operations on addresses.
func (t *Table) run(ctx context.Context, ops []op) ([]state.Op, error) {
	var done []state.Op
	var errs []error
	for _, o := range ops {
		if err := ctx.Err(); err != nil {
			errs = append(errs, fmt.Errorf("change the addresses of device %s: %w", t.device, err))
			break
		}
		if err := t.apply(o); err != nil {
			errs = append(errs, state.FailKey(state.ServerKey{Addr: o.binding.Addr()}, fmt.Errorf("%s: %w", o, explainAddress(err, o))))
			continue
		}
		done = append(done, o)
	}
	return done, errors.Join(t.shorten(errs)...)
}

// shorten folds the errors beyond the first few into one that counts them.
func (t *Table) shorten(errs []error) []error {
	if len(errs) <= maxErrors {
		return errs
	}
	var rest state.Change
	for _, err := range errs[maxErrors:] {
		if !rest.Fails(err) {
			return errs
		}
	}
	more := &state.KeyError{
		Keys: slices.Collect(maps.Keys(rest.Failed)),
		Err:  fmt.Errorf("device %s: %d more addresses failed", t.device, len(errs)-maxErrors),
	}
	return append(slices.Clip(errs[:maxErrors]), more)
}

// apply carries out one operation on an address and notes it in the belief.
func (t *Table) apply(o op) error {
	switch o.verb {
	case verbAdd:
		if err := t.kernel.add(t.index, o.binding); err != nil && !errors.Is(err, unix.EEXIST) {
			return err
		}
		t.note(o.binding)
	case verbReplace:
		if err := t.kernel.replace(t.index, o.binding); err != nil {
			return err
		}
		t.note(o.binding)
	case verbDel:
		if err := t.kernel.del(t.index, o.binding); err != nil && !gone(err) {
			return err
		}
		t.forget(o.binding.Addr())
	}
	return nil
}

// gone reports whether an address could not be deleted because it, or its
// device, is no longer there.
func gone(err error) bool {
	return errors.Is(err, unix.EADDRNOTAVAIL) || errors.Is(err, unix.ENODEV)
}
