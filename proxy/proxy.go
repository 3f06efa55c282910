// Package proxy runs the loop: it takes what the sources see, lets desired
// work out what the node shall hold and has the layers bring the kernel there,
// in order, again after an error, and from time to time as a whole. It holds
// no rule about Services and touches no kernel itself.
package proxy

import (
	"context"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/state"
	"go.uber.org/zap"
)

// Sets is the layer of ipsets.
type Sets interface {
	state.Layer
	// Entries returns the members that a set is believed to have.
	Entries(set string) map[state.Entry]uint32
	// References counts, for each set of ours, the rules that name it.
	References(context.Context) (map[string]int, error)
	// Glance returns the same after a check, at the cost of one short dump,
	// that each set has as many members as it should.
	Glance(context.Context) (references map[string]int, intact bool, err error)
}

// Servers is the layer of virtual servers.
type Servers interface {
	state.Layer
	// IsForeign tells whether somebody else's virtual server stands at a key.
	IsForeign(state.ServerKey) bool
	// Adopt takes over what is wanted and safely can be, and returns what
	// belongs to somebody else.
	Adopt(*state.Node, *state.Change) []*state.KeyError
	Keys() []state.ServerKey
	Open(state.ServerKey) (bool, error)
	Empty(state.ServerKey) bool
	Draining() (keys []state.ServerKey, reals int, wait time.Duration)
	Counts() (servers, reals int)
	// Glance checks, at a cost that has a bound, that nobody changed the table.
	Glance() (intact bool, err error)
}

// VIPs is the layer of addresses on the proxy's device.
type VIPs interface {
	state.Layer
	// Addresses returns what is believed to be bound.
	Addresses() map[netip.Addr]struct{}
}

// Flows cleans up after UDP real servers that are gone.
type Flows interface {
	Clean(ctx context.Context, want *state.Node, change *state.Change) ([]state.Op, error)
}

// Checks serves the health-check node ports.
type Checks interface {
	// Sync opens and closes ports; it returns what could not be opened, by
	// Service.
	Sync(map[state.Name]state.HealthCheck) map[state.Name]error
}

// Settings are what the kernel must be set to besides: sysctls and time-outs.
type Settings interface {
	Ensure() ([]state.Op, error)
}

// Layers are the parts of the node's state, in the order in which they are
// created.
type Layers struct {
	Settings Settings
	Sets     Sets
	Rules    state.Layer
	Servers  Servers
	VIPs     VIPs
	Flows    Flows
	Checks   Checks
}

// Observer is told what the loop does.
type Observer interface {
	// Queued says that something waits to be programmed.
	Queued(at time.Time)
	// Began says that a pass begins.
	Began(at time.Time)
	// Synced reports a pass. Its error is nil if everything that was wanted is
	// in force.
	Synced(Pass)
	// Problems replaces what is wrong with a Service.
	Problems(state.Name, []desired.Problem)
	// Eligible says whether load balancers may send to this node.
	Eligible(bool)
}

// Pass describes one pass of the loop.
type Pass struct {
	At    time.Time
	Took  time.Duration
	Whole bool // everything was read and compared
	// Done counts the operations by layer, Failed names the layers with errors
	// and Err joins what went wrong.
	Done   map[string]int
	Failed []string
	Err    error
	// Broken says that a layer failed as a whole, and not only for some keys.
	Broken bool
	// Services, Servers, Reals and Draining count what the node holds.
	Services, Servers, Reals, Draining int
	NoLocal                            map[desired.Policy]int
	// Triggered holds the trigger times of the slices that the pass applied.
	Triggered map[state.Family][]time.Time
}

// Operations counts the operations of all layers.
func (p Pass) Operations() int {
	total := 0
	for _, n := range p.Done {
		total += n
	}
	return total
}

// Config is what a Proxy needs.
type Config struct {
	Log     *zap.Logger
	Node    string
	Options *desired.Options
	Layers  Layers
	// Period is the longest time between two comparisons of everything, Least
	// the shortest time between two passes.
	Period, Least time.Duration
	Now           func() time.Time
	Observer      Observer
}

// Proxy keeps one node's kernel in step with the cluster. One goroutine, that
// of Run, owns it; the sources speak to its Sink.
type Proxy struct {
	Config
	inbox *inbox
	asks  chan func(context.Context)
	view  *view
	index *desired.Index

	dirty   map[state.Name]struct{} // Services whose share must be worked out
	pending state.Change            // what the layers have not been shown yet
	unclean state.Change            // what failed passes named; its flows are still to be cleaned
	triggers
	schedule
	references map[string]int // of the sets by our rules, once they are in place
	rulesDue   bool
	disturbed  bool // the addresses on our device were touched, perhaps by us
	rulesAt    time.Time
	failed     map[state.ServerKey]struct{} // keys that failed since the last whole pass that succeeded
	broken     bool                         // a layer failed as a whole in this pass
	ruled      bool                         // the rules are as wanted after this pass
	unopened   map[state.Name]error         // health-check node ports
	started    bool                         // the first whole pass has succeeded
	complaint  string                       // the error that was logged last
}

// New returns a Proxy that waits for Run.
func New(c Config) *Proxy {
	v := newView(c.Node)
	return &Proxy{
		Config: c, inbox: newInbox(), asks: make(chan func(context.Context)), view: v, index: desired.NewIndex(c.Options, v.self),
		dirty: map[state.Name]struct{}{}, failed: map[state.ServerKey]struct{}{}, rulesDue: true,
		triggers: triggers{since: c.Now()},
		schedule: schedule{whole: true, period: c.Period, least: c.Least},
	}
}

// Sink returns where the sources put what they see.
func (p *Proxy) Sink() state.Sink { return p.inbox }

// Run works until the context ends. It leaves the kernel as it is.
func (p *Proxy) Run(ctx context.Context) {
	timer := time.NewTimer(time.Hour)
	defer timer.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case ask := <-p.asks:
			ask(ctx)
		case <-p.inbox.signal:
		case <-timer.C:
		}
		timer.Reset(p.turn(ctx))
	}
}

// turn takes in what came and makes a pass if one is due. It returns how long
// to sleep if nothing comes.
func (p *Proxy) turn(ctx context.Context) time.Duration {
	batch, synced := p.inbox.take()
	p.absorb(batch)
	if !synced {
		return time.Hour
	}
	now := p.Now()
	if wait := p.schedule.wait(now, p.work()); wait > 0 {
		return wait
	}
	if p.schedule.look(now) {
		p.look(ctx)
	}
	if p.schedule.due(now) || p.work() || p.schedule.drained(now) {
		p.pass(ctx)
	}
	return p.schedule.wait(p.Now(), false)
}

// work tells whether there is something to show to the layers.
func (p *Proxy) work() bool { return p.disturbed || len(p.dirty) > 0 || !p.pending.Empty() }

// absorb notes what a batch touches.
func (p *Proxy) absorb(b batch) {
	touched, moved := p.view.absorb(b)
	if moved {
		p.rulesDue = p.index.SetSelf(p.view.self) || p.rulesDue
		p.schedule.whole = true
		for name := range p.view.cluster.Services {
			touched[name] = struct{}{}
		}
	}
	p.disturbed = p.disturbed || b.disturbed
	if len(touched) > 0 {
		p.Observer.Queued(p.Now())
	}
	for name := range touched {
		p.dirty[name] = struct{}{}
	}
	p.triggers.note(b)
	p.Observer.Eligible(p.view.eligible())
}
