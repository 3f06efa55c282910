package desired

import (
	"cmp"
	"maps"
	"net/netip"
	"reflect"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Index merges the shares of all Services into one state.Node and keeps track
// of what a change of one share touches. It is not safe for use by several
// goroutines.
type Index struct {
	opts  *Options
	marks *marks

	want   *state.Node
	shares map[state.Name]*Share
	// claims lists the frontends at each key, the best first; force holds the
	// one whose state the node has.
	claims map[state.ServerKey][]*Frontend
	force  map[state.ServerKey]*Frontend
	// These count the users of what several frontends may share.
	bound    map[netip.Addr]int
	shortcut map[state.ServerKey]int
	entries  map[member]int
	retired  map[state.ServerKey]struct{}
	// blocked are keys that belong to another program, with what to say of it.
	// Nobody's claim is in force there.
	blocked map[state.ServerKey]string
	noLocal map[Policy]int
}

// NewIndex returns an Index without Services. The rules and the detector's set
// follow from the options and from what the node knows of itself.
func NewIndex(opts *Options, self *state.Self) *Index {
	x := &Index{
		opts: opts, marks: newMarks(opts.MasqueradeBit), want: state.NewNode(),
		shares: map[state.Name]*Share{}, claims: map[state.ServerKey][]*Frontend{},
		force: map[state.ServerKey]*Frontend{},
		bound: map[netip.Addr]int{}, shortcut: map[state.ServerKey]int{}, entries: map[member]int{},
		retired: map[state.ServerKey]struct{}{}, blocked: map[state.ServerKey]string{}, noLocal: map[Policy]int{},
	}
	x.want.Sets, x.want.SetOrder = emptySets(opts.Families)
	x.SetSelf(self)
	return x
}

// Want returns what the node shall hold now. It stays the Index's own.
func (x *Index) Want() *state.Node { return x.want }

// SetSelf takes over what depends on the node itself and on no Service. It
// tells whether the rules are other ones now.
func (x *Index) SetSelf(self *state.Self) bool {
	was := x.want.Rules
	x.want.Rules = rules(x.opts, self)
	for _, f := range x.opts.Families {
		pods := x.want.Sets[setPod.in(f)].Entries
		clear(pods)
		for _, p := range x.opts.Detector.cidrs(f, self) {
			for _, half := range storable(p) {
				pods[state.Entry{Net: half}] = 0
			}
		}
	}
	return !reflect.DeepEqual(was, x.want.Rules)
}

// storable splits the prefix of length 0, which no set can hold, into two.
func storable(p netip.Prefix) []netip.Prefix {
	if p.Bits() > 0 {
		return []netip.Prefix{p.Masked()}
	}
	if p.Addr().Is4() {
		return []netip.Prefix{netip.MustParsePrefix("0.0.0.0/1"), netip.MustParsePrefix("128.0.0.0/1")}
	}
	return []netip.Prefix{netip.MustParsePrefix("::/1"), netip.MustParsePrefix("8000::/1")}
}

// Mark returns the function that gives a Service's ports their marks.
func (x *Index) Mark(service state.Name) func(state.Protocol, uint16) uint32 {
	return func(p state.Protocol, number uint16) uint32 {
		return x.marks.of(portKey{service: service, protocol: p, number: number})
	}
}

// Replace puts a Service's new share in the place of its old one; nil means
// that the Service is gone. It returns what the change touches and the keys
// that no Service uses any more.
func (x *Index) Replace(name state.Name, share *Share) (*state.Change, []state.ServerKey) {
	old := x.shares[name]
	change := &state.Change{}
	touched := map[state.ServerKey]struct{}{}
	x.tally(old, -1)
	x.tally(share, 1)
	x.retract(old, share, touched)
	x.file(name, share, touched)

	var lost []state.ServerKey
	for key := range touched {
		x.settle(key, change)
		if len(x.claims[key]) == 0 {
			lost = append(lost, key)
		}
	}
	for key := range change.Servers {
		if key.Mark != 0 && x.shortcut[key] == 0 {
			lost = append(lost, key)
		}
	}
	x.swapMembers(old, share, change)
	x.swapCheck(name, share, change)
	slices.SortFunc(lost, state.ServerKey.Compare)
	return change, lost
}

// retract withdraws the claims of the old share and takes its frontends out of
// force.
func (x *Index) retract(old, next *Share, touched map[state.ServerKey]struct{}) {
	if old == nil {
		return
	}
	for _, f := range old.Fronts {
		touched[f.Key] = struct{}{}
		x.claims[f.Key] = slices.DeleteFunc(x.claims[f.Key], func(o *Frontend) bool { return o == f })
	}
	if next == nil {
		x.marks.forget(old.Service)
	}
}

func (x *Index) file(name state.Name, share *Share, touched map[state.ServerKey]struct{}) {
	if share == nil {
		delete(x.shares, name)
		return
	}
	x.shares[name] = share
	for _, f := range share.Fronts {
		touched[f.Key] = struct{}{}
		x.claims[f.Key] = slices.DeleteFunc(x.claims[f.Key], func(o *Frontend) bool { return o.retired })
		x.claims[f.Key] = append(x.claims[f.Key], f)
		slices.SortStableFunc(x.claims[f.Key], x.before)
	}
}

// before orders the claims on a key: external IPs, which anybody may write
// into a Service, come last; then the older Service, then by name.
func (x *Index) before(a, b *Frontend) int {
	if a.class != b.class && (a.class == externalIP || b.class == externalIP) {
		return cmp.Compare(a.class, b.class)
	}
	return cmp.Or(x.shares[a.Service].Created.Compare(x.shares[b.Service].Created),
		a.Service.Compare(b.Service))
}

// settle puts the best claim on a key in force. What the new frontend needs is
// counted before what the old one needed is given up, so that what both need
// is not touched.
func (x *Index) settle(key state.ServerKey, change *state.Change) {
	change.Server(key)
	var now *Frontend
	if c := x.claims[key]; len(c) > 0 && x.blocked[key] == "" {
		now = c[0]
	}
	was := x.force[key]
	if was == now {
		return
	}
	if now != nil {
		x.raise(now, change)
	}
	if was != nil {
		x.lower(was, change)
	}
	x.enforce(key, now)
}

// enforce notes the frontend that is in force at a key, nil for none.
func (x *Index) enforce(key state.ServerKey, f *Frontend) {
	delete(x.want.Flows, key)
	delete(x.retired, key)
	if f == nil {
		if len(x.claims[key]) == 0 {
			delete(x.claims, key)
		}
		delete(x.force, key)
		delete(x.want.VirtualServers, key)
		return
	}
	x.force[key] = f
	if f.retired {
		x.retired[key] = struct{}{}
	}
	x.want.VirtualServers[key] = f.server
	if key.Protocol == state.UDP {
		x.want.Flows[key] = f.live
	}
}

func (x *Index) raise(f *Frontend, change *state.Change) {
	for _, m := range f.members() {
		x.addMember(m, change)
	}
	if f.bind {
		if x.bound[f.Key.Addr]++; x.bound[f.Key.Addr] == 1 {
			x.want.Addresses[f.Key.Addr] = struct{}{}
			change.Address(f.Key.Addr)
		}
		x.addMember(x.guard(f), change)
	}
	if f.mark != 0 {
		key := state.MarkKey(f.Key.Family(), f.mark)
		// A retired one, which this takes over.
		delete(x.force, key)
		delete(x.claims, key)
		delete(x.retired, key)
		x.shortcut[key]++
		x.want.VirtualServers[key] = f.shortcut
		change.Server(key)
	}
}

func (x *Index) lower(f *Frontend, change *state.Change) {
	for _, m := range f.members() {
		x.dropMember(m, change)
	}
	if f.bind {
		if x.bound[f.Key.Addr]--; x.bound[f.Key.Addr] == 0 {
			delete(x.bound, f.Key.Addr)
			delete(x.want.Addresses, f.Key.Addr)
			change.Address(f.Key.Addr)
		}
		x.dropMember(x.guard(f), change)
	}
	if f.mark != 0 {
		key := state.MarkKey(f.Key.Family(), f.mark)
		if x.shortcut[key]--; x.shortcut[key] == 0 {
			delete(x.shortcut, key)
			delete(x.want.VirtualServers, key)
			change.Server(key)
		}
	}
}

// guard is the entry that closes the ports of an address which no Service has.
func (x *Index) guard(f *Frontend) member {
	return member{set: setAddress.in(f.Key.Family()), entry: state.IPEntry(f.Key.Addr)}
}

func (x *Index) addMember(m member, change *state.Change) {
	if x.entries[m]++; x.entries[m] == 1 {
		x.want.Sets[m.set].Entries[m.entry] = m.mark
		change.Entry(m.set, m.entry)
	}
}

func (x *Index) dropMember(m member, change *state.Change) {
	if x.entries[m]--; x.entries[m] > 0 {
		return
	}
	delete(x.entries, m)
	change.Entry(m.set, m.entry)
	// The same entry may be wanted with another mark by now.
	if x.want.Sets[m.set].Entries[m.entry] == m.mark {
		delete(x.want.Sets[m.set].Entries, m.entry)
	}
}

// swapMembers exchanges the entries of a Service that belong to no frontend.
func (x *Index) swapMembers(old, next *Share, change *state.Change) {
	for _, m := range next.loose() {
		x.addMember(m, change)
	}
	for _, m := range old.loose() {
		x.dropMember(m, change)
	}
}

// loose lists the set entries that belong to no frontend.
func (s *Share) loose() []member {
	if s == nil {
		return nil
	}
	return slices.Concat(s.hairpins, s.health)
}

func (x *Index) swapCheck(name state.Name, share *Share, change *state.Change) {
	was, had := x.want.Checks[name]
	if share == nil || share.Check == nil {
		if had {
			delete(x.want.Checks, name)
			change.Check(name)
		}
		return
	}
	if !had || !reflect.DeepEqual(was, *share.Check) {
		x.want.Checks[name] = *share.Check
		change.Check(name)
	}
}

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
