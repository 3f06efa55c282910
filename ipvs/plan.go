package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// verb is what an operation does.
type verb int

const (
	addServer verb = iota
	editServer
	delServer
	addReal
	editReal
	delReal
)

// Op is one request to IPVS. It prints as the ipvsadm arguments that do the
// same.
type Op struct {
	verb   verb
	server Server // with the key alone where only that counts
	real   Real
}

// String returns the operation in ipvsadm's notation.
func (o Op) String() string {
	key := o.server.Key.String()
	switch o.verb {
	case addServer:
		return "-A " + key + o.server.options()
	case editServer:
		return "-E " + key + o.server.options()
	case delServer:
		return "-D " + key
	case addReal:
		return fmt.Sprintf("-a %s -r %s -m -w %d", key, o.real.At, o.real.Weight)
	case editReal:
		return fmt.Sprintf("-e %s -r %s -m -w %d", key, o.real.At, o.real.Weight)
	}
	return fmt.Sprintf("-d %s -r %s", key, o.real.At)
}

// options prints the scheduler, persistence and flags as ipvsadm -S does.
func (s Server) options() string {
	text := " -s " + s.Scheduler
	if s.Flags&state.Persistent != 0 {
		text += " -p " + strconv.FormatUint(uint64(s.Timeout), 10)
	}
	if names := s.flagNames(); names != "" {
		text += " -b " + names
	}
	if s.Flags&state.OnePacket != 0 {
		text += " -o"
	}
	return text
}

// flagNames lists the scheduler's flags as ipvsadm names them.
func (s Server) flagNames() string {
	names := map[state.ServerFlags]string{state.Sched1: "flag-1", state.Sched2: "flag-2", state.Sched3: "flag-3"}
	if s.Scheduler == "sh" || s.Scheduler == "mh" {
		names[state.Sched1], names[state.Sched2] = s.Scheduler+"-fallback", s.Scheduler+"-port"
	}
	text := ""
	for _, f := range []state.ServerFlags{state.Sched1, state.Sched2, state.Sched3} {
		if s.Flags&f == 0 {
			continue
		}
		if text != "" {
			text += ","
		}
		text += names[f]
	}
	return text
}

// server is what we believe the kernel to hold at a key.
type server struct {
	Server
	reals map[netip.AddrPort]*realServer
	// foreign says that somebody else made it; it must not be changed.
	foreign bool
}

// realServer is a real server of ours.
type realServer struct {
	weight int
	// forward is the forwarding method, 0 (NAT) for what we make.
	forward uint32
	// since is when it was first seen to drain, zero while it does not; limit is
	// how long it may.
	since time.Time
	limit time.Duration
}

// planEnsure returns what makes a virtual server take new connections as
// wanted. What shall take none any more is left to planPrune.
func planEnsure(key state.ServerKey, want *state.VirtualServer, have *server) []Op {
	if want == nil || want.Scheduler == "" {
		return nil
	}
	wanted := Server{Key: key, Scheduler: want.Scheduler, Flags: want.Flags, Timeout: want.Timeout}
	var ops []Op
	switch {
	case have == nil:
		ops = append(ops, Op{verb: addServer, server: wanted})
	case have.Server != wanted:
		ops = append(ops, Op{verb: editServer, server: wanted})
	}
	for _, at := range sortedAddrs(want.Real) {
		weight := want.Real[at]
		if weight == 0 {
			continue
		}
		real := Real{At: at, Weight: weight}
		var there *realServer
		if have != nil {
			there = have.reals[at]
		}
		switch {
		case there == nil:
			ops = append(ops, Op{verb: addReal, server: Server{Key: key}, real: real})
		case there.weight != weight || there.forward != 0:
			ops = append(ops, Op{verb: editReal, server: Server{Key: key}, real: real})
		}
	}
	return ops
}

// planPrune returns what takes away the real servers of a virtual server that
// shall take no new connections: each is set to weight 0 and stays while its
// connections do. seen holds the kernel's present counts.
func planPrune(key state.ServerKey, want *state.VirtualServer, have *server, seen map[netip.AddrPort]Real, limits Limits, now time.Time) []Op {
	var ops []Op
	for _, at := range sortedAddrs(have.reals) {
		weight, listed := want.Real[at]
		if weight > 0 {
			continue
		}
		there := have.reals[at]
		counts, present := seen[at]
		switch {
		case !present || drained(want, listed, counts, there.since, limits, now):
			ops = append(ops, Op{verb: delReal, server: Server{Key: key}, real: Real{At: at}})
		case there.weight != 0:
			ops = append(ops, Op{verb: editReal, server: Server{Key: key}, real: Real{At: at}})
		}
	}
	return ops
}

// drained decides whether a real server that shall take no new connections can
// go. listed says that its endpoint is still known and may finish its work.
//
// For TCP and SCTP active connections count. The inactive ones count for a short
// while, so that a handshake on its way is not cut; those that are closed
// already (TIME_WAIT) do not keep it. A UDP flow has no end
// that IPVS could see: it goes with its endpoint.
func drained(want *state.VirtualServer, listed bool, counts Real, since time.Time, limits Limits, now time.Time) bool {
	if want.Datagrams && !listed {
		return true
	}
	if counts.Active+counts.Inactive == 0 {
		return true
	}
	if since.IsZero() {
		return false
	}
	age := now.Sub(since)
	if age >= limits.of(listed) {
		return true
	}
	return !want.Datagrams && counts.Active == 0 && age >= limits.Settle
}

func sortedAddrs[V any](m map[netip.AddrPort]V) []netip.AddrPort {
	addrs := make([]netip.AddrPort, 0, len(m))
	for a := range m {
		addrs = append(addrs, a)
	}
	slices.SortFunc(addrs, netip.AddrPort.Compare)
	return addrs
}
