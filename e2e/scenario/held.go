package scenario

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// hold opens a connection and keeps it.
type hold struct {
	name, from string
	to         destination
	proto      traffic.Proto
	bind       uint16
}

func (p *parser) hold(n *yaml.Node) action {
	t := p.table(n, "hold")
	h := hold{
		name:  p.text(t.need("name", "c1"), "name"),
		from:  p.host(t.need("from", "client"), "from", "host", anyHost),
		to:    p.destination(t.need("to", `"vip1:80"`)),
		proto: p.proto(t.get("proto")),
		bind:  p.port(t.get("bind"), "bind"),
	}
	t.done()
	if h.name != "" {
		p.begin("hold", h.name, t.node)
	}
	return h
}

func (h hold) do(_ context.Context, s *session) error {
	client, err := s.client(h.from)
	if err != nil {
		return err
	}
	held, attempt, err := client.Hold(traffic.Target{Proto: h.proto, Addr: h.to.addr}, h.bind)
	if err != nil {
		return fmt.Errorf("hold %s: %w", h.name, err)
	}
	if held == nil {
		return failf("hold %s from %s to %s over %s: want a connection, saw %s", h.name, h.from, h.to.text, h.proto, attempt.Result)
	}
	s.held[h.name] = held
	return nil
}

// closeHeld closes a held connection.
type closeHeld string

func (p *parser) closeHeld(n *yaml.Node) action {
	name := p.text(n, "close")
	p.refer("hold", name, n, true)
	return closeHeld(name)
}

func (c closeHeld) do(_ context.Context, s *session) error {
	held := s.held[string(c)]
	delete(s.held, string(c))
	if err := held.Close(); err != nil {
		return fmt.Errorf("close %s: %w", string(c), err)
	}
	return nil
}

// held checks whether a held connection lives.
type held struct {
	name    string
	state   traffic.State
	backend string
}

func (p *parser) held(t *table) check {
	n := t.need("name", "c1")
	h := held{name: p.text(n, "name"), state: traffic.Alive}
	p.refer("hold", h.name, n, false)
	if n := t.need("expect", "{alive: true}"); n != nil {
		p.heldExpect(n, &h)
	}
	return h
}

func (p *parser) heldExpect(n *yaml.Node, h *held) {
	t := p.table(n, "expect")
	alive, backend := t.get("alive"), t.get("backend")
	if alive != nil {
		h.state = map[string]traffic.State{
			"true": traffic.Alive, "false": traffic.Closed, "silent": traffic.Silent,
		}[p.oneOf(alive, "alive", "true", "false", "silent")]
	}
	if backend != nil {
		h.backend = p.host(backend, "backend", "host", anyHost)
	}
	switch {
	case alive == nil && backend == nil && len(t.keys) == 0:
		p.fault(t.node, "expect is empty; write {alive: true}, perhaps with backend: b1")
	case backend != nil && h.state != traffic.Alive:
		p.fault(backend, "backend looks at an answer, but alive wants none; take one of the two out")
	}
	t.done()
}

func (h held) try(_ context.Context, s *session) error {
	state, answer := s.held[h.name].Say()
	if state == h.state && (h.backend == "" || answer.Host == h.backend) {
		return nil
	}
	saw, want := string(state), string(h.state)
	if state == traffic.Alive {
		saw += " at " + answer.Host
	}
	if h.backend != "" {
		want += " at " + h.backend
	}
	err := failf("held %s: want it %s, saw it %s", h.name, want, saw)
	if state == traffic.Closed {
		return finally(err) // A closed connection does not come back.
	}
	return err
}
