package desired

import (
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Block gives a key up to another program, and says why. What Services claim
// there stays unserved until Unblock.
func (x *Index) Block(key state.ServerKey, why string) *state.Change {
	change := &state.Change{}
	x.blocked[key] = why
	x.settle(key, change)
	return change
}

// Unblock takes back a key that Block gave up.
func (x *Index) Unblock(key state.ServerKey) *state.Change {
	change := &state.Change{}
	delete(x.blocked, key)
	x.settle(key, change)
	return change
}

// Blocked lists the keys that belong to other programs.
func (x *Index) Blocked() []state.ServerKey {
	return slices.SortedFunc(maps.Keys(x.blocked), state.ServerKey.Compare)
}

// IsBlocked tells whether a key belongs to another program.
func (x *Index) IsBlocked(key state.ServerKey) bool { return x.blocked[key] != "" }

// Claimants lists the Services that claim a key.
func (x *Index) Claimants(key state.ServerKey) []state.Name {
	var names []state.Name
	for _, f := range x.claims[key] {
		if !f.retired {
			names = append(names, f.Service)
		}
	}
	return names
}

// Retire keeps a key in place that no Service claims any more, for the sake of
// its open connections: new ones are refused, and its real servers drain.
// bind says whether the address is on the proxy's device. A Service that
// claims the key takes it over.
func (x *Index) Retire(key state.ServerKey, bind bool) *state.Change {
	change := &state.Change{}
	if len(x.claims[key]) > 0 || x.shortcut[key] > 0 || x.IsBlocked(key) {
		return change
	}
	x.claims[key] = []*Frontend{{Key: key, bind: bind, refuse: true, retired: true, server: &state.VirtualServer{Datagrams: key.Protocol == state.UDP}}}
	x.settle(key, change)
	return change
}

// Release gives up a key that was retired.
func (x *Index) Release(key state.ServerKey) *state.Change {
	change := &state.Change{}
	if f := x.force[key]; f == nil || !f.retired {
		return change
	}
	x.claims[key] = nil
	x.settle(key, change)
	return change
}

// Retired lists the retired keys.
func (x *Index) Retired() []state.ServerKey {
	return slices.SortedFunc(maps.Keys(x.retired), state.ServerKey.Compare)
}
