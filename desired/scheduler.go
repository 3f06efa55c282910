package desired

import (
	"fmt"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Scheduler is a kernel scheduler with its flags.
type Scheduler struct {
	Name  string
	Flags state.ServerFlags
}

// Schedulers are the names that the kernel knows (net/netfilter/ipvs/Kconfig).
var schedulers = []string{
	"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "mh", "sed", "nq", "fo", "ovf", "twos",
}

// ParseScheduler reads a scheduler's name and optional flags, separated by
// commas, such as "lc", "sh,sh-port" or "mh,mh-fallback". Empty means rr.
//
// sh and mh always get their fallback flag, since without it the clients whose
// hash falls on a draining real server are refused; mh alone gets mh-port, as
// kube-proxy sets it. Once flags are given, they replace that default of mh.
func ParseScheduler(text string) (Scheduler, error) {
	words := strings.Split(text, ",")
	for i := range words {
		words[i] = strings.TrimSpace(words[i])
	}
	name, flags := words[0], words[1:]
	if name == "" && len(flags) == 0 {
		return Scheduler{Name: "rr"}, nil
	}
	if !slices.Contains(schedulers, name) {
		return Scheduler{}, fmt.Errorf("scheduler %q is unknown; the kernel has %s", name, strings.Join(schedulers, ", "))
	}
	s := Scheduler{Name: name, Flags: defaultFlags(name, len(flags) > 0)}
	for _, f := range flags {
		bit, err := schedulerFlag(name, f)
		if err != nil {
			return Scheduler{}, err
		}
		s.Flags |= bit
	}
	return s, nil
}

// defaultFlags returns what a scheduler always has, and mh's source port
// hashing unless the user chose flags.
func defaultFlags(name string, chosen bool) state.ServerFlags {
	switch {
	case name == "mh" && !chosen:
		return state.Sched1 | state.Sched2
	case name == "mh", name == "sh":
		return state.Sched1
	}
	return 0
}

func schedulerFlag(name, flag string) (state.ServerFlags, error) {
	switch {
	case flag == "ops":
		return 0, fmt.Errorf("scheduler flag %q cannot work here: with NAT no reply of a one-packet virtual server reaches the client", flag)
	case (name == "sh" || name == "mh") && flag == name+"-fallback":
		return state.Sched1, nil
	case (name == "sh" || name == "mh") && flag == name+"-port":
		return state.Sched2, nil
	}
	return 0, fmt.Errorf("scheduler %s has no flag %q; sh has sh-fallback and sh-port, mh has mh-fallback and mh-port", name, flag)
}
