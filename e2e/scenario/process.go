package scenario

import (
	"context"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// longest is how long a command or a run of the proxy to its end may take before the lab gives it up.
const longest = 2 * time.Minute

// command runs a line in a host.
type command struct {
	on, line string
	expect   *commandExpect
}

func (p *parser) command(n *yaml.Node) action {
	t := p.table(n, "run")
	c := command{
		on:     p.host(t.need("on", "node1"), "on", "host", anyHost),
		line:   p.text(t.need("command", `"ip link del kube-ipvs0"`), "command"),
		expect: p.commandExpect(t.get("expect")),
	}
	t.done()
	return c
}

func (c command) do(ctx context.Context, s *session) error {
	h, err := s.host(c.on)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, s.slowed(longest))
	defer cancel()
	output, exit, err := h.Command(ctx, c.line)
	if err == nil {
		err = c.expect.compare(output, exit)
	}
	if err != nil {
		return fmt.Errorf("run on %s: %w", c.on, err)
	}
	return nil
}

// proxyStep starts and stops the proxy of a node.
type proxyStep struct {
	on, act string
	options ProxyOptions
	expect  *commandExpect
}

func (p *parser) proxyStep(n *yaml.Node) action {
	t := p.table(n, "proxy")
	s := proxyStep{
		on: p.host(t.need("on", "node1"), "on", "node", HostSpec.IsNode),
		act: p.oneOf(t.need("do", "restart"), "do",
			"start", "stop", "kill", "restart", "restart-after-kill", "run"),
	}
	config, args, expect := t.get("config"), t.get("args"), t.get("expect")
	s.options = ProxyOptions{Config: p.fields(config, "config"), Args: p.texts(args, "args")}
	if s.act == "stop" || s.act == "kill" {
		for key, n := range map[string]*yaml.Node{"config": config, "args": args} {
			if n != nil {
				p.fault(n, "%s means nothing to do: %s; it belongs to start, restart or run", key, s.act)
			}
		}
	}
	if expect != nil && s.act != "run" {
		p.fault(expect, "expect belongs to do: run; whether the proxy works is for the next steps to check")
	}
	s.expect = p.commandExpect(expect)
	t.done()
	return s
}

func (ps proxyStep) do(ctx context.Context, s *session) error {
	proxy := s.world.Proxy(ps.on)
	if proxy == nil {
		return fmt.Errorf("the lab has no proxy on %s", ps.on)
	}
	if err := ps.perform(ctx, s, proxy); err != nil {
		return fmt.Errorf("%s proxy on %s: %w", ps.act, ps.on, err)
	}
	return nil
}

func (ps proxyStep) perform(ctx context.Context, s *session, proxy Proxy) error {
	end := proxy.Stop
	switch ps.act {
	case "start":
		return proxy.Start(ctx, ps.options)
	case "stop":
		return proxy.Stop(ctx)
	case "kill":
		return proxy.Kill(ctx)
	case "run":
		return ps.once(ctx, s, proxy)
	case "restart-after-kill":
		end = proxy.Kill
	}
	if err := end(ctx); err != nil {
		return err
	}
	return proxy.Start(ctx, ps.options)
}

// once runs the proxy to its end.
func (ps proxyStep) once(ctx context.Context, s *session, proxy Proxy) error {
	ctx, cancel := context.WithTimeout(ctx, s.slowed(longest))
	defer cancel()
	output, exit, err := proxy.Run(ctx, ps.options)
	if err != nil {
		return err
	}
	return ps.expect.compare(output, exit)
}
