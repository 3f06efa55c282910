package desired

import (
	"cmp"
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
