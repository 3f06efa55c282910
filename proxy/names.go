package proxy

import (
	"context"
	"errors"
	"net/netip"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Names tells whose the virtual servers and real servers are.
type Names struct {
	// Servers maps a virtual server, in the notation of state.ServerKey, to its
	// Service port.
	Servers map[string]string `json:"servers"`
	// Pods maps the address of an endpoint to its pod.
	Pods map[netip.Addr]string `json:"pods"`
}

// Names asks the loop for the names of what it programs. It may be called from
// any goroutine while Run runs.
func (p *Proxy) Names(ctx context.Context) (Names, error) {
	answer := make(chan Names, 1)
	select {
	case p.asks <- func(context.Context) { answer <- p.names() }:
		return <-answer, nil
	case <-ctx.Done():
		return Names{}, ctx.Err()
	}
}

// Compare has the loop read everything now, bring it in step and say what it
// did. It may be called from any goroutine while Run runs.
func (p *Proxy) Compare(ctx context.Context) (Pass, error) {
	answer := make(chan Pass, 1)
	failed := make(chan error, 1)
	ask := func(ctx context.Context) {
		batch, synced := p.inbox.take()
		p.absorb(batch)
		if !synced {
			failed <- errors.New("the Services of the cluster are not known yet")
			return
		}
		p.schedule.whole, p.schedule.retryAt, p.rulesDue = true, time.Time{}, true
		answer <- p.pass(ctx)
	}
	select {
	case p.asks <- ask:
	case <-ctx.Done():
		return Pass{}, ctx.Err()
	}
	select {
	case pass := <-answer:
		return pass, pass.Err
	case err := <-failed:
		return Pass{}, err
	}
}

func (p *Proxy) names() Names {
	n := Names{Servers: map[string]string{}, Pods: map[netip.Addr]string{}}
	for key := range p.index.Want().VirtualServers {
		if service, port, ok := p.index.Owner(key); ok {
			n.Servers[key.String()] = portName(service, port)
		}
	}
	for _, slices := range p.view.cluster.Slices {
		for _, s := range slices {
			for _, e := range s.Endpoints {
				if e.Pod != "" {
					n.Pods[e.Addr] = e.Pod
				}
			}
		}
	}
	return n
}

// portName returns namespace/name:port, without the colon for an unnamed port.
func portName(service state.Name, port string) string {
	if port == "" {
		return service.String()
	}
	return service.String() + ":" + port
}
