package iptables

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Flavour is one variant of the iptables programs and the families for which
// it works.
type Flavour struct {
	// Name is the IPv4 program: iptables-nft, iptables-legacy or iptables.
	Name     string
	Families []state.Family
	// saved is what the save programs printed during Detect, so that the first
	// Read need not start them again.
	saved map[state.Family]string
	// elsewhere says that another flavour holds chains of ours, from a time when
	// the node used that one.
	elsewhere bool
}

// The names of the flavours, in the order in which they are tried. The plain
// name is one of the other two under another name, or an iptables older than
// 1.8.
const (
	NFT    = "iptables-nft"
	Legacy = "iptables-legacy"
	Plain  = "iptables"
)

// program returns the name of a family's program; "-save" and "-restore" after
// it give those programs' names.
func (f Flavour) program(family state.Family) string {
	return command(family) + strings.TrimPrefix(f.Name, Plain)
}

// order is that in which families are asked; the second only of the flavour chosen.
var order = []state.Family{state.IPv4, state.IPv6}

// survey is what was found of one flavour.
type survey struct {
	Flavour
	hint  string // kubelet's chain, if it is there
	rules int    // rules of anybody
	err   error  // why a family does not work
}

// Detect finds the flavour that the rest of the node uses, so that nobody's
// rules are split over two. It takes the one in which kubelet left its hint
// chain (KUBE-IPTABLES-HINT or KUBE-KUBELET-CANARY in mangle, KEP-3178), else
// the one that holds the most rules, else the one that the program iptables
// is. A flavour whose programs are missing or fail (the kernel has no part for
// it) does not count. With a name only that flavour is considered.
//
// The text is one sentence about the choice, for the log. A family that does
// not work is missing from the result; it is an error only if none works.
func Detect(ctx context.Context, name string) (Flavour, string, error) {
	names := []string{NFT, Legacy, Plain}
	switch name {
	case "":
	case NFT, Legacy, Plain:
		names = []string{name}
	default:
		return Flavour{}, "", fmt.Errorf("iptables flavour %q is none of %s, %s, %s", name, NFT, Legacy, Plain)
	}
	var (
		found []survey
		errs  []error
	)
	for _, n := range names {
		if n == Plain && len(found) > 0 {
			break // it is another name of one of those
		}
		s := examine(ctx, n)
		errs = append(errs, s.err)
		if len(s.Families) > 0 {
			found = append(found, s)
		}
	}
	for len(found) > 0 {
		i, reason := choose(found, own(ctx))
		if name != "" {
			reason = name + " was asked for"
		}
		chosen, err := confirm(ctx, found[i])
		if len(chosen.Families) > 0 {
			chosen.elsewhere = slices.ContainsFunc(found, func(s survey) bool { return s.Name != chosen.Name && s.holdsOurs() })
			return chosen, reason + lacking(chosen), nil
		}
		errs = append(errs, err)
		found = append(found[:i:i], found[i+1:]...)
	}
	return Flavour{}, "", noFlavour(name, errors.Join(errs...))
}

// choose returns the index of the flavour to use and why. The program
// iptables is of the flavour own.
func choose(found []survey, own string) (int, string) {
	for i, s := range found {
		if s.hint != "" {
			return i, fmt.Sprintf("%s: kubelet's chain %s is there%s", s.Name, s.hint, others(found, i))
		}
	}
	most, standard := 0, 0
	for i, s := range found {
		if s.rules > found[most].rules || s.rules == found[most].rules && s.Name == own {
			most = i
		}
		if s.Name == own {
			standard = i
		}
	}
	if found[most].rules > 0 {
		return most, fmt.Sprintf("%s: it holds %d rules%s", found[most].Name, found[most].rules, others(found, most))
	}
	if found[standard].Name == own {
		return standard, fmt.Sprintf("%s: no rules anywhere, and the program iptables is of this flavour", own)
	}
	return standard, fmt.Sprintf("%s: no rules anywhere, and it is the first that works", found[standard].Name)
}

// holdsOurs tells whether a flavour holds chains of ours.
func (s survey) holdsOurs() bool {
	for _, text := range s.saved {
		if strings.Contains(text, "\n:"+Prefix) {
			return true
		}
	}
	return false
}

// others warns of rules in flavours that were not chosen. The plain program is
// a second name of one of them.
func others(found []survey, chosen int) string {
	var text string
	for i, s := range found {
		if i != chosen && s.rules > 0 && s.Name != Plain {
			text += fmt.Sprintf("; %s holds %d rules as well", s.Name, s.rules)
		}
	}
	return text
}

// lacking names the family that does not work.
func lacking(f Flavour) string {
	if len(f.Families) == 2 {
		return ""
	}
	missing := state.IPv6
	if f.Families[0] == state.IPv6 {
		missing = state.IPv4
	}
	return fmt.Sprintf("; without %s, for which it does not work", missing)
}

// examine runs a flavour's save program for IPv4, and the one for IPv6 where
// that fails: starting programs is what takes time at the start of a proxy.
func examine(ctx context.Context, name string) survey {
	s := survey{Flavour: Flavour{Name: name, saved: map[state.Family]string{}}}
	var errs []error
	for _, family := range order {
		if err := s.add(ctx, family); err != nil {
			errs = append(errs, err)
			continue
		}
		break
	}
	s.err = errors.Join(errs...)
	return s
}

// add asks for one family.
func (s *survey) add(ctx context.Context, family state.Family) error {
	text, err := saveWith(ctx, s.program(family))
	if err != nil {
		return err
	}
	s.Families = append(s.Families, family)
	s.saved[family] = text
	hint, rules := count(text)
	if s.hint == "" {
		s.hint = hint
	}
	s.rules += rules
	return nil
}

// confirm asks for the family that examine left out, and keeps the families in
// which a table can be opened. Saving without naming a table proves nothing
// for the legacy programs: where the kernel has no tables they print none and
// succeed.
func confirm(ctx context.Context, s survey) (Flavour, error) {
	if len(s.Families) == 1 && s.Families[0] == state.IPv4 {
		// That IPv6 does not work is told by its not being there.
		_ = s.add(ctx, state.IPv6)
	}
	works := Flavour{Name: s.Name, saved: s.saved}
	var errs []error
	for _, family := range s.Families {
		if !strings.Contains(s.saved[family], "*") {
			if _, err := saveWith(ctx, s.program(family), "-t", "nat"); err != nil {
				errs = append(errs, err)
				continue
			}
		}
		works.Families = append(works.Families, family)
	}
	return works, errors.Join(errs...)
}

// saveWith runs a program's save companion if all of its programs are there.
func saveWith(ctx context.Context, program string, args ...string) (string, error) {
	for _, suffix := range []string{"", "-save", "-restore"} {
		if _, err := exec.LookPath(program + suffix); err != nil {
			return "", err
		}
	}
	return run(ctx, "", program+"-save", args...)
}

// own returns the flavour of the program that is simply called iptables.
func own(ctx context.Context) string {
	version, err := run(ctx, "", Plain, "--version")
	switch {
	case err != nil:
		return Plain
	case strings.Contains(version, "nf_tables"):
		return NFT
	default:
		return Legacy
	}
}

// count returns kubelet's chain, if it is there, and the number of rules.
func count(save string) (hint string, rules int) {
	table := ""
	for line := range strings.Lines(save) {
		line = strings.TrimSpace(line)
		switch {
		case strings.HasPrefix(line, "*"):
			table = line[1:]
		case strings.HasPrefix(line, "-A "):
			rules++
		case table == "mangle" && strings.HasPrefix(line, ":KUBE-IPTABLES-HINT "):
			hint = "KUBE-IPTABLES-HINT"
		case table == "mangle" && hint == "" && strings.HasPrefix(line, ":KUBE-KUBELET-CANARY "):
			hint = "KUBE-KUBELET-CANARY"
		}
	}
	return hint, rules
}

// noFlavour words the error for a node on which nothing works.
func noFlavour(name string, err error) error {
	if name == "" {
		name = Plain
	}
	if onlyMissing(err) {
		return fmt.Errorf("no program %s, %s-save and %s-restore in PATH: install the package iptables", name, name, name)
	}
	return fmt.Errorf("no flavour of iptables works here; load the kernel modules ip_tables, iptable_nat, iptable_filter and iptable_mangle, or nf_tables: %w", err)
}

// onlyMissing reports whether every error in a join is of a missing program.
func onlyMissing(err error) bool {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		for _, e := range joined.Unwrap() {
			if !onlyMissing(e) {
				return false
			}
		}
		return true
	}
	return errors.Is(err, exec.ErrNotFound)
}
