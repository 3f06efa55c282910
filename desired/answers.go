package desired

import (
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Owner returns the Service and port whose frontend is in force at a key, or
// that a mark leads to.
func (x *Index) Owner(key state.ServerKey) (state.Name, string, bool) {
	if k, ok := x.marks.taken[key.Mark]; ok && key.Mark != 0 {
		return k.service, x.portName(k), true
	}
	f := x.force[key]
	if f == nil || f.retired {
		return state.Name{}, "", false
	}
	return f.Service, f.Port, true
}

// portName looks up the present name of a port that has a mark.
func (x *Index) portName(k portKey) string {
	if share := x.shares[k.service]; share != nil {
		for _, f := range share.Fronts {
			if f.class != nodePort && f.Key.Protocol == k.protocol && f.Key.Port == k.number {
				return f.Port
			}
		}
	}
	return ""
}

// Problems lists what is wrong with a Service, with the keys that another
// Service holds against it.
func (x *Index) Problems(svc *state.Service) []Problem {
	share := x.shares[svc.Name]
	if share == nil {
		return nil
	}
	all := slices.Clone(share.Problems)
	for _, f := range share.Fronts {
		if why := x.blocked[f.Key]; why != "" {
			all = append(all, problem(svc, ReasonForeign, "%s %s: %s", f.class, f.Key.Addr, why))
			continue
		}
		holder := x.force[f.Key]
		if holder == nil || holder == f {
			continue
		}
		all = append(all, problem(svc, ReasonClaimed, "%s %s port %d/%s belongs to Service %s, whose claim goes before; it is served once that one goes",
			f.class, f.Key.Addr, f.Key.Port, f.Key.Protocol, holder.Service))
	}
	return all
}

// Rivals lists the other Services that claim a key of this one: their problems
// change with it.
func (x *Index) Rivals(name state.Name) []state.Name {
	rivals := map[state.Name]struct{}{}
	if share := x.shares[name]; share != nil {
		for _, f := range share.Fronts {
			for _, c := range x.claims[f.Key] {
				if c.Service != name && !c.retired {
					rivals[c.Service] = struct{}{}
				}
			}
		}
	}
	return slices.SortedFunc(maps.Keys(rivals), state.Name.Compare)
}

// NoLocal counts, by policy and family, the Services whose policy Local finds
// nobody on this node.
func (x *Index) NoLocal() map[Policy]int { return maps.Clone(x.noLocal) }

// tally adds a share to what is counted over all Services, or takes it off.
func (x *Index) tally(s *Share, by int) {
	if s == nil {
		return
	}
	for p := range s.NoLocal {
		x.noLocal[p] += by
	}
}
