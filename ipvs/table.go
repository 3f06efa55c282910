// Package ipvs keeps the kernel's virtual servers as wanted, by moby/ipvs. It
// never decides who serves what; the one thing that it decides from what it
// sees is when a real server that takes no new connections has drained.
package ipvs

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
	"golang.org/x/sys/unix"
)

// Limits bound the draining of real servers.
type Limits struct {
	// Listed is for an endpoint that the cluster still lists, Gone for one that
	// it does not.
	Listed, Gone time.Duration
	// Settle is how long connections that are not established hold up a
	// real server.
	Settle time.Duration
}

// of returns the limit for a real server whose endpoint is listed or not.
func (l Limits) of(listed bool) time.Duration {
	if listed {
		return l.Listed
	}
	return l.Gone
}

// DefaultLimits are in force where nothing else is configured.
var DefaultLimits = Limits{Listed: 10 * time.Minute, Gone: time.Minute, Settle: 2 * time.Second}

// Timeouts are the kernel's connection time-outs in this namespace; 0 leaves a
// value as it is.
type Timeouts struct{ TCP, TCPFin, UDP time.Duration }

// Config tells a Table what it cannot know.
type Config struct {
	Limits Limits
	// Owned tells from the record whether a virtual server found in the kernel
	// is ours. It is asked in Read.
	Owned func(state.ServerKey) bool
	// Bound tells whether an address is on our device. It is asked in Adopt.
	Bound func(netip.Addr) bool
	// Now is the clock.
	Now func() time.Time
}

// Table is the layer of virtual servers and real servers.
type Table struct {
	kernel Kernel
	config Config
	have   map[state.ServerKey]*server
	// These are kept in step with have, so that a change need not count it all.
	foreign  int
	reals    int
	draining map[state.ServerKey]int // real servers that drain
	// contested are keys at which we met a virtual server that was not there at
	// the last Read. The record says nothing about those.
	contested map[state.ServerKey]bool
}

var _ state.Layer = (*Table)(nil)

// Open opens IPVS in the calling thread's network namespace. It fails with
// ErrNoIPVS where the kernel has none.
func Open(c Config) (*Table, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	return New(k, c), nil
}

// New returns a Table on a kernel.
func New(k Kernel, c Config) *Table {
	return &Table{kernel: k, config: c, have: map[state.ServerKey]*server{}, draining: map[state.ServerKey]int{}, contested: map[state.ServerKey]bool{}}
}

// Read learns the kernel's virtual servers. One that was ours stays ours, even
// where the record of that is lost.
func (t *Table) Read(ctx context.Context) error {
	servers, err := t.kernel.Servers()
	if err != nil {
		return fmt.Errorf("list virtual servers: %w", err)
	}
	have := make(map[state.ServerKey]*server, len(servers))
	for _, s := range servers {
		if err := ctx.Err(); err != nil {
			return err
		}
		before := t.have[s.Key]
		ours := (before != nil && !before.foreign) || (!t.contested[s.Key] && t.config.Owned(s.Key))
		reals, err := t.readReals(s.Key, before)
		if err != nil {
			return err
		}
		have[s.Key] = &server{Server: s, reals: reals, foreign: !ours}
	}
	t.have = have
	clear(t.contested)
	t.recount()
	return nil
}

func (t *Table) readReals(key state.ServerKey, before *server) (map[netip.AddrPort]*realServer, error) {
	list, err := t.kernel.Reals(key)
	if err != nil {
		return nil, fmt.Errorf("list real servers of %s: %w", key, err)
	}
	reals := make(map[netip.AddrPort]*realServer, len(list))
	for _, r := range list {
		rs := &realServer{weight: r.Weight, forward: r.Forward}
		if r.Weight == 0 {
			rs.since, rs.limit = t.config.Now(), t.config.Limits.Gone
			if before != nil && before.reals[r.At] != nil && !before.reals[r.At].since.IsZero() {
				rs.since, rs.limit = before.reals[r.At].since, before.reals[r.At].limit
			}
		}
		reals[r.At] = rs
	}
	return reals, nil
}

// Ensure creates and edits what takes new connections.
func (t *Table) Ensure(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	var done []state.Op
	var errs []error
	for _, key := range t.keys(want, change) {
		if err := ctx.Err(); err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		if change.FailedKey(key) {
			continue
		}
		have := t.have[key]
		if have != nil && have.foreign {
			continue
		}
		ops, err := t.ensure(planEnsure(key, want.VirtualServers[key], have))
		done = append(done, ops...)
		if err != nil {
			errs = append(errs, err)
		}
	}
	return done, errors.Join(errs...)
}

// ensure carries out the operations on one virtual server until one fails. A
// real server that the kernel refuses for its address, such as a broadcast
// address of the node, is left out: the others serve.
func (t *Table) ensure(ops []Op) (done []state.Op, err error) {
	var refused []error
	for _, op := range ops {
		err := t.run(op)
		switch {
		case err == nil:
			done = append(done, op)
		case op.verb >= addReal && errors.Is(err, unix.EINVAL):
			refused = append(refused, err)
		default:
			return done, err
		}
	}
	if len(refused) > 0 {
		return done, &state.KeyError{Err: errors.Join(refused...)}
	}
	return done, nil
}

// Adopt takes over the virtual servers that are wanted and not known to be ours
// where that is safe: at an address on our device, or where there are real
// servers and all of them are wanted ones. Any other is somebody else's, and
// returned as an ErrForeign. It comes before anything is written into the
// record of what is ours.
func (t *Table) Adopt(want *state.Node, change *state.Change) []*state.KeyError {
	if t.foreign == 0 {
		return nil
	}
	var others []*state.KeyError
	for _, key := range t.keys(want, change) {
		have, vs := t.have[key], want.VirtualServers[key]
		if vs == nil || have == nil || !have.foreign {
			continue
		}
		if err := t.strange(have, vs); err != nil {
			others = append(others, &state.KeyError{Keys: []state.ServerKey{key}, Err: err})
			continue
		}
		have.foreign = false
		t.foreign--
		for _, rs := range have.reals {
			t.count(key, rs, 1)
		}
	}
	return others
}

// strange returns an error if nothing shows that a virtual server is ours.
func (t *Table) strange(s *server, want *state.VirtualServer) error {
	if t.config.Bound(s.Key.Addr) {
		return nil
	}
	if len(s.reals) == 0 {
		return fmt.Errorf("virtual server %s without real servers %w", s.Key, state.ErrForeign)
	}
	for at, rs := range s.reals {
		if _, ok := want.Real[at]; !ok || rs.forward != 0 {
			return fmt.Errorf("virtual server %s with real server %s %w", s.Key, at, state.ErrForeign)
		}
	}
	return nil
}

// IsForeign tells whether somebody else's virtual server stands at a key.
func (t *Table) IsForeign(key state.ServerKey) bool {
	have := t.have[key]
	return have != nil && have.foreign
}

// Prune drains and removes what is not wanted.
func (t *Table) Prune(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error) {
	var done []state.Op
	var errs []error
	for _, key := range t.keys(want, change) {
		if err := ctx.Err(); err != nil {
			return done, errors.Join(append(errs, err)...)
		}
		have := t.have[key]
		if have == nil || have.foreign || change.FailedKey(key) {
			continue
		}
		ops, err := t.prune(key, want.VirtualServers[key], have)
		if err != nil {
			errs = append(errs, err)
		}
		for _, op := range ops {
			if err := t.run(op); err != nil {
				errs = append(errs, err)
				continue
			}
			done = append(done, op)
		}
	}
	return done, errors.Join(errs...)
}

// prune plans for one virtual server. The kernel is asked for counts only where
// a real server is not wanted.
func (t *Table) prune(key state.ServerKey, want *state.VirtualServer, have *server) ([]Op, error) {
	if want == nil {
		return []Op{{verb: delServer, server: Server{Key: key}}}, nil
	}
	if !have.surplus(want) {
		return nil, nil
	}
	list, err := t.kernel.Reals(key)
	if err != nil {
		return nil, state.FailKey(key, fmt.Errorf("list real servers of %s: %w", key, err))
	}
	seen := make(map[netip.AddrPort]Real, len(list))
	for _, r := range list {
		seen[r.At] = r
		if rs := have.reals[r.At]; rs != nil {
			_, listed := want.Real[r.At]
			rs.limit = t.config.Limits.of(listed)
		}
	}
	return planPrune(key, want, have, seen, t.config.Limits, t.config.Now()), nil
}

// surplus tells whether some real server shall take no new connections.
func (s *server) surplus(want *state.VirtualServer) bool {
	for at := range s.reals {
		if want.Real[at] == 0 {
			return true
		}
	}
	return false
}

// keys lists what the change names, in order.
func (t *Table) keys(want *state.Node, change *state.Change) []state.ServerKey {
	named := change.Servers
	if change.All {
		named = make(map[state.ServerKey]struct{}, len(want.VirtualServers))
		for k := range want.VirtualServers {
			named[k] = struct{}{}
		}
		for k := range t.have {
			named[k] = struct{}{}
		}
	}
	return sortedKeys(named)
}

// run carries out one operation and keeps the belief in step.
func (t *Table) run(op Op) error {
	err := t.call(op)
	if err != nil {
		err = fmt.Errorf("ipvs %s: %w", op, explain(err, op))
		return state.FailKey(op.server.Key, err)
	}
	t.believe(op)
	return nil
}

// call sends the request. A real server that is there already is edited, what
// is gone already needs no removal. A virtual server that is there although the
// last Read did not find it may be somebody else's: that is an error, and the
// next Read and Adopt decide.
func (t *Table) call(op Op) error {
	key := op.server.Key
	switch op.verb {
	case addServer:
		err := t.kernel.AddServer(op.server)
		if errors.Is(err, unix.EEXIST) {
			t.contested[key] = true
		}
		return err
	case editServer:
		return t.kernel.EditServer(op.server)
	case delServer:
		if err := t.kernel.DelServer(key); !gone(err) {
			return err
		}
		return nil
	case addReal:
		if err := t.kernel.AddReal(key, op.real); !errors.Is(err, unix.EEXIST) {
			return err
		}
		return t.kernel.EditReal(key, op.real)
	case editReal:
		return t.kernel.EditReal(key, op.real)
	}
	if err := t.kernel.DelReal(key, op.real.At); !gone(err) {
		return err
	}
	return nil
}

// believe notes what a successful operation did.
func (t *Table) believe(op Op) {
	key := op.server.Key
	have := t.have[key]
	switch op.verb {
	case addServer:
		t.have[key] = &server{Server: op.server, reals: map[netip.AddrPort]*realServer{}}
	case editServer:
		have.Server = op.server
	case delServer:
		for at := range have.reals {
			t.note(have, at, nil)
		}
		delete(t.have, key)
	case addReal, editReal:
		rs := &realServer{weight: op.real.Weight}
		if rs.weight == 0 {
			rs.since, rs.limit = t.config.Now(), t.config.Limits.Gone
		}
		t.note(have, op.real.At, rs)
	case delReal:
		t.note(have, op.real.At, nil)
	}
}

// note puts a real server in the place of what was there; nil takes it away.
func (t *Table) note(s *server, at netip.AddrPort, now *realServer) {
	if was := s.reals[at]; was != nil {
		t.count(s.Key, was, -1)
		delete(s.reals, at)
	}
	if now != nil {
		t.count(s.Key, now, 1)
		s.reals[at] = now
	}
}

func (t *Table) count(key state.ServerKey, rs *realServer, by int) {
	t.reals += by
	if rs.since.IsZero() {
		return
	}
	if t.draining[key] += by; t.draining[key] == 0 {
		delete(t.draining, key)
	}
}

// recount counts everything anew, after everything was read.
func (t *Table) recount() {
	t.foreign, t.reals, t.draining = 0, 0, map[state.ServerKey]int{}
	for key, s := range t.have {
		if s.foreign {
			t.foreign++
			continue
		}
		for _, rs := range s.reals {
			t.count(key, rs, 1)
		}
	}
}

// explain adds the remedy to errors that have one.
func explain(err error, op Op) error {
	if op.verb <= editServer && errors.Is(err, unix.ENOENT) {
		return &state.NoScheduler{Name: op.server.Scheduler}
	}
	if errors.Is(err, unix.EPERM) {
		return fmt.Errorf("%w: the capability NET_ADMIN is missing", err)
	}
	return err
}
