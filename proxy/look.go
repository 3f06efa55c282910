package proxy

import (
	"context"
	"fmt"

	"go.uber.org/zap"
)

// set gives the kernel the settings that it has lost.
func (p *Proxy) set() error {
	changed, err := p.Layers.Settings.Ensure()
	for _, op := range changed {
		p.Log.Warn("a kernel setting was not as needed any more; set again", zap.Stringer("operation", op))
	}
	if err != nil {
		return fmt.Errorf("kernel settings: %w", err)
	}
	return nil
}

// lookAtAddresses compares the addresses on our device with what is wanted: an
// event tells that something happened there, and most often it was our own
// doing.
func (p *Proxy) lookAtAddresses(ctx context.Context) error {
	if err := p.Layers.VIPs.Read(ctx); err != nil {
		return fmt.Errorf("read addresses: %w", err)
	}
	have, want := p.Layers.VIPs.Addresses(), p.index.Want().Addresses
	for a := range want {
		if _, there := have[a]; !there {
			p.pending.Address(a)
		}
	}
	for a := range have {
		if _, wanted := want[a]; !wanted {
			p.pending.Address(a)
		}
	}
	return nil
}

// look notices at little cost what somebody else did to our sets, rules and
// virtual servers, and asks for a whole pass then.
func (p *Proxy) look(ctx context.Context) {
	if err := p.set(); err != nil {
		p.disturb("settings", err)
	}
	references, intact, err := p.Layers.Sets.Glance(ctx)
	if err != nil || !intact {
		p.disturb("sets", err)
	}
	if err == nil && p.rulesGone(references) {
		p.rulesDue = true
		p.disturb("iptables rules", nil)
	}
	if intact, err := p.Layers.Servers.Glance(); err != nil || !intact {
		p.disturb("virtual servers", err)
	}
}

func (p *Proxy) disturb(what string, err error) {
	p.schedule.whole = true
	p.Log.Warn("kernel state of ours was changed by somebody else; mending it", zap.String("what", what), zap.Error(err))
}

// rulesGone tells whether fewer rules name our sets than did when the rules
// were in place.
func (p *Proxy) rulesGone(references map[string]int) bool {
	for set, n := range p.references {
		if references[set] < n {
			return true
		}
	}
	return false
}

// settleRules remembers how many rules name each set, once they are in place.
func (p *Proxy) settleRules(ctx context.Context) {
	p.rulesDue = false
	p.rulesAt = p.Now()
	refs, err := p.Layers.Sets.References(ctx)
	if err != nil {
		p.rulesDue = true
		return
	}
	p.references = refs
}
