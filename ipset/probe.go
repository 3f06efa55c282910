package ipset

import (
	"errors"
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// probeName is a set that exists only during Probe.
const probeName = Prefix4 + "PROBE"

// Probe creates and destroys one set of each type that the project needs. The
// error names the kernel module or the right that is missing and what to do.
func (t *Table) Probe() error {
	needs := []struct {
		spec
		module string
	}{
		{spec{Type: state.HashIP}, "ip_set_hash_ip"},
		{spec{Type: state.HashNet}, "ip_set_hash_net"},
		{spec{Type: state.HashIPPort, Marks: true}, "ip_set_hash_ipport"},
		{spec{Type: state.HashIPPortIP}, "ip_set_hash_ipportip"},
		{spec{Type: state.HashIPPortNet}, "ip_set_hash_ipportnet"},
	}
	if err := t.vanish(probeName); err != nil {
		return fmt.Errorf("probe ipset: %w", explain(err, "ip_set"))
	}
	var missing []string
	var errs []error
	for _, need := range needs {
		need.Family, need.Max = state.IPv4, maxElements
		err := errors.Join(t.kernel.create(probeName, need.spec), t.vanish(probeName))
		if errors.Is(err, codeType) {
			missing = append(missing, need.module)
		} else if err != nil {
			errs = append(errs, fmt.Errorf("probe ipset type %s: %w", need.Type, explain(err, need.module)))
		}
	}
	if len(missing) > 0 {
		errs = append(errs, fmt.Errorf("probe ipset: %w", explain(codeType, missing...)))
	}
	return errors.Join(errs...)
}

// vanish destroys a set that may not exist.
func (t *Table) vanish(set string) error {
	if err := t.kernel.destroy(set); !errors.Is(err, unix.ENOENT) {
		return err
	}
	return nil
}
