package ipset

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Fake is a kernel in memory, for tests. It refuses what the kernel refuses.
type Fake struct {
	// Fault, if set, is asked before each call and again after it, with the
	// call's name such as "add KIPVS-SERVICE". An error makes the call fail:
	// before it without any effect, after it as if only the answer were lost.
	Fault func(call string) error

	mu   sync.Mutex
	sets map[string]*fakeSet
}

type fakeSet struct {
	held
	references int
}

var _ kernel = (*Fake)(nil)

// NewFake returns a kernel without sets.
func NewFake() *Fake { return &Fake{sets: map[string]*fakeSet{}} }

// Put makes a set hold exactly this, as somebody else might have done. It
// keeps the references to the set.
func (f *Fake) Put(name string, set state.Set) {
	f.mu.Lock()
	defer f.mu.Unlock()
	next := &fakeSet{held: held{specOf(&set), map[state.Entry]uint32{}}}
	maps.Copy(next.entries, set.Entries)
	if old := f.sets[name]; old != nil {
		next.references = old.references
	}
	f.sets[name] = next
}

// Refer says how many rules name a set. A set that does not exist cannot be
// named.
func (f *Fake) Refer(name string, references int) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if s := f.sets[name]; s != nil {
		s.references = references
	}
}

// Save prints all sets as "ipset save" does, in order and without the
// arguments that the kernel chooses (hashsize, bucketsize, initval).
func (f *Fake) Save() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var b strings.Builder
	for _, name := range slices.Sorted(maps.Keys(f.sets)) {
		s := f.sets[name]
		fmt.Fprintln(&b, op{verb: verbCreate, set: name, spec: s.spec})
		for _, e := range slices.SortedFunc(maps.Keys(s.entries), compare) {
			fmt.Fprintln(&b, op{verb: verbAdd, set: name, member: member{e, s.entries[e]}})
		}
	}
	return b.String()
}

// Flush empties every set, as "ipset flush" does.
func (f *Fake) Flush() {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.sets {
		clear(s.entries)
	}
}

// call runs one call between its faults.
func (f *Fake) call(name string, do func() error) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.Fault == nil {
		return do()
	}
	if err := f.Fault(name); err != nil {
		return err
	}
	if err := do(); err != nil {
		return err
	}
	return f.Fault(name)
}

func (f *Fake) close() {}

func (f *Fake) headers() (map[string]header, error) {
	found := map[string]header{}
	err := f.call("list", func() error {
		for name, s := range f.sets {
			found[name] = header{s.spec, Header{len(s.entries), s.references}}
		}
		return nil
	})
	return found, err
}

func (f *Fake) entries(set string) (map[state.Entry]uint32, error) {
	var found map[state.Entry]uint32
	err := f.call("list "+set, func() error {
		s := f.sets[set]
		if s == nil {
			return unix.ENOENT
		}
		found = maps.Clone(s.entries)
		return nil
	})
	return found, err
}

func (f *Fake) create(set string, s spec) error {
	return f.call("create "+set, func() error {
		switch old := f.sets[set]; {
		case len(set) > maxName:
			return codeProtocol
		case revisions[s.Type] == 0:
			return codeType
		case old == nil:
			f.sets[set] = &fakeSet{held: held{s, map[state.Entry]uint32{}}}
		case old.spec != s:
			return unix.EEXIST
		}
		return nil
	})
}

func (f *Fake) destroy(set string) error {
	return f.call("destroy "+set, func() error {
		switch s := f.sets[set]; {
		case s == nil:
			return unix.ENOENT
		case s.references > 0:
			return codeBusy
		}
		delete(f.sets, set)
		return nil
	})
}

func (f *Fake) swap(a, b string) error {
	return f.call("swap "+a, func() error {
		x, y := f.sets[a], f.sets[b]
		switch {
		case x == nil:
			return unix.ENOENT
		case y == nil:
			return codeSecond
		case x.Type != y.Type || x.Family != y.Family:
			return codeMismatch
		}
		x.held, y.held = y.held, x.held
		return nil
	})
}

func (f *Fake) add(set string, members []member) error {
	return f.members("add", set, members, func(s *fakeSet, m member) error {
		_, there := s.entries[m.entry]
		switch {
		case s.check(m.entry) != nil:
			return codeProtocol
		case zero(s.spec, m.entry):
			return codeElement
		case m.mark != 0 && !s.Marks:
			return codeSkbinfo
		case !there && len(s.entries) >= int(s.Max):
			return codeFull
		}
		s.entries[m.entry] = m.mark
		return nil
	})
}

// zero reports whether the entry is the one address that hash:ip cannot hold.
func zero(s spec, e state.Entry) bool {
	return s.Type == state.HashIP && e.Net.Addr().IsUnspecified()
}

func (f *Fake) del(set string, members []member) error {
	return f.members("del", set, members, func(s *fakeSet, m member) error {
		delete(s.entries, m.entry)
		return nil
	})
}

// members does something to each member up to the first that is refused.
func (f *Fake) members(verb, set string, members []member, do func(*fakeSet, member) error) error {
	return f.call(verb+" "+set, func() error {
		s := f.sets[set]
		if s == nil {
			return unix.ENOENT
		}
		for i, m := range members {
			if err := do(s, m); err != nil {
				return &refusal{i, err}
			}
		}
		return nil
	})
}
