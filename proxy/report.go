package proxy

import (
	"slices"
	"time"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/state"
	"go.uber.org/zap"
)

// finish notes the outcome and tells the observer.
func (p *Proxy) finish(r *Pass, whole bool, touched map[state.Name]struct{}) {
	now := p.Now()
	r.Took = now.Sub(r.At)
	p.schedule.done(now, whole, r.Err != nil, r.Broken, p.cost(r))
	r.Draining = p.awaitDrains(now)
	r.Servers, r.Reals = p.Layers.Servers.Counts()
	r.Services = len(p.view.cluster.Services)
	r.NoLocal = p.index.NoLocal()
	if r.Err == nil && (whole || p.schedule.retryAt.IsZero()) {
		r.Triggered = p.triggers.take()
	}
	p.started = p.started || (whole && !r.Broken)
	p.logPass(r)
	p.Observer.Synced(*r)
	for name := range touched {
		p.reportProblems(name)
	}
}

// cost is what reading and comparing everything takes; a pass that also had to
// write tells nothing about that.
func (p *Proxy) cost(r *Pass) time.Duration {
	if r.Operations() > 0 {
		return p.schedule.cost
	}
	return r.Took
}

// syncChecks opens and closes health-check node ports, and notes the Services
// whose ports could not be opened or can be by now.
func (p *Proxy) syncChecks(touched map[state.Name]struct{}) {
	failed := p.Layers.Checks.Sync(p.index.Want().Checks)
	for name := range p.unopened {
		touched[name] = struct{}{}
	}
	for name := range failed {
		touched[name] = struct{}{}
	}
	p.unopened = failed
}

// awaitDrains notes when to look at draining real servers again: at once if a
// retired virtual server has lost its last one. It returns how many drain.
func (p *Proxy) awaitDrains(now time.Time) int {
	_, draining, wait := p.Layers.Servers.Draining()
	p.schedule.drainsAt = time.Time{}
	retired := p.index.Retired()
	if draining > 0 || len(retired) > 0 {
		p.schedule.drainsAt = now.Add(wait)
	}
	if slices.ContainsFunc(retired, p.Layers.Servers.Empty) {
		p.schedule.drainsAt = now
	}
	return draining
}

func (p *Proxy) reportProblems(name state.Name) {
	svc := p.view.cluster.Services[name]
	if svc == nil {
		p.Observer.Problems(name, nil)
		return
	}
	problems := p.index.Problems(svc)
	if err := p.unopened[name]; err != nil {
		problems = append(problems, desired.Problem{Service: name, UID: svc.UID, Reason: desired.ReasonHealthCheck, Message: err.Error()})
	}
	p.Observer.Problems(name, problems)
}

func (p *Proxy) logOps(layer string, done []state.Op) {
	if !p.Log.Core().Enabled(zap.DebugLevel) {
		return
	}
	for _, op := range done {
		p.Log.Debug("done", zap.String("layer", layer), zap.Stringer("operation", op))
	}
}

// logPass writes one line for a pass that changed something or failed, none for
// one that found everything as wanted.
func (p *Proxy) logPass(r *Pass) {
	total := r.Operations()
	fields := []zap.Field{
		zap.Bool("whole", r.Whole), zap.Duration("took", r.Took), zap.Any("operations", r.Done),
		zap.Int("servers", r.Servers), zap.Int("real-servers", r.Reals), zap.Int("draining", r.Draining),
	}
	switch {
	case r.Err != nil && r.Err.Error() != p.complaint:
		p.complaint = r.Err.Error()
		p.Log.Error("the node is not as wanted; trying again until it is", append(fields, zap.Error(r.Err))...)
	case r.Err == nil && p.complaint != "" && r.Whole:
		p.complaint = ""
		p.Log.Info("the node is as wanted again", fields...)
	case total > 0:
		p.Log.Info("changed", fields...)
	}
}
