package ipset

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// checkNames finds what is wrong with the names of the wanted sets.
func checkNames(want *state.Node) error {
	var errs []error
	for _, name := range slices.Sorted(maps.Keys(want.Sets)) {
		switch {
		case !Ours(name):
			errs = append(errs, fmt.Errorf("ipset %s: the name begins with neither %s nor %s", name, Prefix4, Prefix6))
		case len(name) > maxName:
			errs = append(errs, fmt.Errorf("ipset %s: the name is longer than %d bytes", name, maxName))
		case !slices.Contains(want.SetOrder, name):
			errs = append(errs, fmt.Errorf("ipset %s has no place in the order of sets", name))
		}
	}
	return errors.Join(errs...)
}

// check says why a set of this spec cannot hold the entry as it stands. What
// it lets pass comes back from the kernel as the same entry.
func (s spec) check(e state.Entry) error {
	if s.Type != state.HashIP && s.Type != state.HashNet {
		if err := s.checkPort(e); err != nil {
			return err
		}
	} else if e.Addr.IsValid() || e.Protocol != 0 || e.Port != 0 {
		return fmt.Errorf("a %s entry has no port", s.Type)
	}
	return s.checkNet(e)
}

func (s spec) checkPort(e state.Entry) error {
	switch {
	case !e.Addr.IsValid() || state.FamilyOf(e.Addr) != s.Family:
		return fmt.Errorf("the address is not %s", s.Family)
	case e.Addr.Is4In6() || e.Addr.Zone() != "":
		return errors.New("the address is not a plain IPv6 address")
	case e.Protocol != state.TCP && e.Protocol != state.UDP && e.Protocol != state.SCTP:
		return fmt.Errorf("protocol %s has no ports", e.Protocol)
	}
	return nil
}

func (s spec) checkNet(e state.Entry) error {
	if s.Type == state.HashIPPort {
		if e.Net.IsValid() {
			return fmt.Errorf("a %s entry has no third part", s.Type)
		}
		return nil
	}
	wide := s.Type == state.HashNet || s.Type == state.HashIPPortNet
	switch {
	case !e.Net.IsValid() || state.FamilyOf(e.Net.Addr()) != s.Family:
		return fmt.Errorf("%s is not %s", e.Net, s.Family)
	case e.Net.Addr().Is4In6():
		return errors.New("the address is not a plain IPv6 address")
	case !wide && !e.Net.IsSingleIP():
		return fmt.Errorf("a %s entry is a single address", s.Type)
	case e.Net.Bits() == 0:
		return errors.New("a network of prefix length 0 cannot be stored, only two halves of length 1")
	case e.Net != e.Net.Masked():
		return fmt.Errorf("%s has host bits set", e.Net)
	}
	return nil
}
