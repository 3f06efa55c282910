package proxy

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/state"
	"go.uber.org/zap"
)

// pass brings the kernel in step once: observe, decide, create, prune, report.
func (p *Proxy) pass(ctx context.Context) Pass {
	began := p.Now()
	whole := p.schedule.due(began)
	p.Observer.Began(began)
	r := Pass{At: began, Whole: whole, Done: map[string]int{}}
	var rules bool
	switch {
	case whole:
		rules, r.Err = p.read(ctx)
	case p.disturbed:
		r.Err = p.lookAtAddresses(ctx)
	}
	p.disturbed = false
	touched := p.decide(whole)
	change := p.pending
	if whole {
		change.Merge(&p.unclean)
	}
	change.All = whole
	p.broken, p.ruled = !change.Fails(r.Err), false
	if !p.broken {
		p.meetOthers(&change, touched)
		p.spare(&change)
		r.Err = errors.Join(r.Err, p.apply(ctx, &change, rules, &r))
	}
	if rules && p.ruled {
		p.settleRules(ctx)
	}
	r.Broken = p.broken
	p.carry(&change, whole, r.Err)
	if whole {
		// A setting that cannot be made stops nothing else.
		r.Err = errors.Join(r.Err, p.set())
	}
	if whole || len(change.Checks) > 0 || len(p.unopened) > 0 {
		p.syncChecks(touched)
	}
	p.finish(&r, whole, touched)
	return r
}

// carry keeps what a failed pass named until a whole pass succeeds.
func (p *Proxy) carry(change *state.Change, whole bool, err error) {
	p.pending = state.Change{}
	switch {
	case err != nil:
		if whole {
			clear(p.failed)
		}
		maps.Copy(p.failed, change.Failed)
		change.All, change.Failed = false, nil
		p.unclean.Merge(change)
	case whole:
		p.unclean = state.Change{}
		clear(p.failed)
	}
}

// spare keeps a pass over a change off the keys that failed before: what they
// need may not be in place. A whole pass tries them again.
func (p *Proxy) spare(change *state.Change) {
	if change.All || len(p.failed) == 0 {
		return
	}
	change.Fails(&state.KeyError{Keys: slices.Collect(maps.Keys(p.failed))})
}

// read learns what the kernel holds. The rules cost processes, so they are
// read only if they may have changed.
func (p *Proxy) read(ctx context.Context) (rules bool, err error) {
	var unread error
	if err := p.Layers.Sets.Read(ctx); err != nil {
		return false, fmt.Errorf("read sets: %w", err)
	}
	if references, err := p.Layers.Sets.References(ctx); err != nil || p.rulesGone(references) {
		p.rulesDue = true
	}
	rules = p.rulesDue || p.Now().Sub(p.rulesAt) >= p.Period
	if rules {
		if err := p.Layers.Rules.Read(ctx); err != nil {
			unread = fmt.Errorf("read iptables: %w", err)
		}
	}
	if unread != nil && !p.started {
		return rules, unread
	}
	if err := p.Layers.VIPs.Read(ctx); err != nil {
		return rules, fmt.Errorf("read addresses: %w", err)
	}
	if err := p.Layers.Servers.Read(ctx); err != nil {
		return rules, fmt.Errorf("read IPVS: %w", err)
	}
	if unread != nil {
		// The rules stood before. Somebody who holds the lock of iptables must not
		// hold up everything else.
		return false, &state.KeyError{Err: unread}
	}
	return rules, nil
}

// decide works out the shares of the touched Services and gathers what the
// layers must look at. It returns the Services whose problems may have changed.
func (p *Proxy) decide(whole bool) map[state.Name]struct{} {
	touched := map[state.Name]struct{}{}
	for _, name := range slices.SortedFunc(maps.Keys(p.dirty), state.Name.Compare) {
		p.note(name, touched)
		share := p.share(name)
		change, lost := p.index.Replace(name, share)
		p.pending.Merge(change)
		p.retire(lost)
		p.note(name, touched)
	}
	clear(p.dirty)
	if whole {
		p.retire(p.unclaimed())
	}
	for _, key := range p.index.Retired() {
		if p.Layers.Servers.Empty(key) {
			p.pending.Merge(p.index.Release(key))
		}
	}
	if p.schedule.drained(p.Now()) {
		drains, _, _ := p.Layers.Servers.Draining()
		for _, key := range drains {
			p.pending.Server(key)
		}
	}
	return touched
}

// note adds a Service and those that claim the same keys.
func (p *Proxy) note(name state.Name, touched map[state.Name]struct{}) {
	touched[name] = struct{}{}
	for _, rival := range p.index.Rivals(name) {
		touched[rival] = struct{}{}
	}
}

// share works out what a Service does to the node, nil if there is none.
func (p *Proxy) share(name state.Name) *desired.Share {
	svc := p.view.cluster.Services[name]
	if svc == nil {
		return nil
	}
	return desired.Compile(svc, p.view.cluster.Slices[name], p.view.self, p.Options, p.index.Mark(name))
}

// unclaimed lists the virtual servers of ours that no Service claims, such as
// those of a Service that went while no proxy ran.
func (p *Proxy) unclaimed() []state.ServerKey {
	want := p.index.Want().VirtualServers
	return slices.DeleteFunc(p.Layers.Servers.Keys(), func(k state.ServerKey) bool {
		_, wanted := want[k]
		return wanted
	})
}

// retire keeps lost keys in place as long as they have open connections. Those
// of a node address that the node no longer has are given up.
func (p *Proxy) retire(lost []state.ServerKey) {
	for _, key := range lost {
		_, bound := p.Layers.VIPs.Addresses()[key.Addr]
		if key.Mark == 0 && !bound && !slices.Contains(p.view.self.Addresses, key.Addr) {
			continue
		}
		open, err := p.Layers.Servers.Open(key)
		if err != nil {
			p.Log.Warn("cannot count connections; taking it that there are some", zap.Stringer("server", key), zap.Error(err))
		}
		if open || err != nil {
			p.pending.Merge(p.index.Retire(key, bound))
		}
	}
}

// apply has the layers create in one direction and prune in the other. A layer
// that failed as a whole ends the pass: nothing may become reachable without
// what stands before it, and nothing is removed because of an error. A single
// key that failed is left out from there on.
func (p *Proxy) apply(ctx context.Context, change *state.Change, rules bool, r *Pass) error {
	type step struct {
		name string
		do   func(context.Context, *state.Node, *state.Change) ([]state.Op, error)
	}
	l := p.Layers
	steps := []step{
		{"sets", l.Sets.Ensure}, {"rules", l.Rules.Ensure}, {"servers", l.Servers.Ensure}, {"addresses", l.VIPs.Ensure},
		{"addresses", l.VIPs.Prune}, {"servers", l.Servers.Prune}, {"rules", l.Rules.Prune}, {"sets", l.Sets.Prune},
		{"flows", l.Flows.Clean},
	}
	var errs []error
	p.ruled = true
	for _, s := range steps {
		if s.name == "rules" && !rules {
			continue
		}
		looked := change
		if s.name == "flows" {
			looked = p.flows(change)
		}
		done, err := s.do(ctx, p.index.Want(), looked)
		p.ruled = p.ruled && (s.name != "rules" || err == nil)
		r.Done[s.name] += len(done)
		if err != nil {
			r.Failed = append(r.Failed, s.name)
		}
		p.logOps(s.name, done)
		if err == nil {
			continue
		}
		errs = append(errs, fmt.Errorf("%s: %w", s.name, err))
		p.noteScheduler(err)
		if change.Fails(err) {
			continue
		}
		if s.name == "rules" && p.started {
			continue // as in read
		}
		p.broken = true
		break
	}
	return errors.Join(errs...)
}

// meetOthers gives up the keys at which another program's virtual server
// stands, and takes back those where none does any more. It comes before
// anything is written, so that what others have never gets into the record of
// what is ours. It adds the Services that this concerns.
func (p *Proxy) meetOthers(change *state.Change, touched map[state.Name]struct{}) {
	if change.All {
		for _, key := range p.index.Blocked() {
			p.concern(key, touched)
			change.Merge(p.index.Unblock(key))
		}
	}
	for _, other := range p.Layers.Servers.Adopt(p.index.Want(), change) {
		key := other.Keys[0]
		change.Merge(p.index.Block(key, other.Error()))
		p.concern(key, touched)
	}
}

// concern adds the Services that claim a key.
func (p *Proxy) concern(key state.ServerKey, touched map[state.Name]struct{}) {
	for _, name := range p.index.Claimants(key) {
		touched[name] = struct{}{}
	}
}

// noteScheduler remembers a scheduler that the kernel lacks. The Services that
// ask for it get the default with the next pass, and their owners an Event.
func (p *Proxy) noteScheduler(err error) {
	var missing *state.NoScheduler
	if !errors.As(err, &missing) || p.Options.Missing[missing.Name] || missing.Name == p.Options.Scheduler.Name {
		return
	}
	if p.Options.Missing == nil {
		p.Options.Missing = map[string]bool{}
	}
	p.Options.Missing[missing.Name] = true
	for name := range p.view.cluster.Services {
		p.dirty[name] = struct{}{}
	}
}

// flows narrows a change for the cleaning of flows: a whole pass looks at all
// of them only the first time, since a dump of all flows is costly and they
// can only go stale by a change.
func (p *Proxy) flows(change *state.Change) *state.Change {
	narrow := *change
	narrow.All = change.All && !p.started
	narrow.Servers = map[state.ServerKey]struct{}{}
	for key := range change.Servers {
		if !p.Layers.Servers.IsForeign(key) && !change.FailedKey(key) {
			narrow.Server(key)
		}
	}
	return &narrow
}
