package scenario

import (
	"context"
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
)

// connect opens connections one after another and checks what came of them.
type connect struct {
	from   string
	to     destination
	proto  traffic.Proto
	times  int
	expect answers
}

func (p *parser) connect(t *table) check {
	c := connect{
		from:  p.host(t.need("from", "client"), "from", "host", anyHost),
		to:    p.destination(t.need("to", `"vip1:80"`)),
		proto: p.proto(t.get("proto")),
		times: 1,
	}
	if times := t.get("times"); times != nil {
		c.times = p.number(times, "times", 1, 10000)
	}
	if n := t.need("expect", "{only: [a1]}"); n != nil {
		c.expect = p.answers(n, c.times)
	}
	return c
}

func (c connect) String() string {
	return fmt.Sprintf("connect from %s to %s over %s", c.from, c.to.text, c.proto)
}

// try is all the connections; it ends at the first answer that contradicts.
func (c connect) try(ctx context.Context, s *session) error {
	client, err := s.client(c.from)
	if err != nil {
		return err
	}
	judge := newJudge(c.expect, c.times, func(a traffic.Attempt) (bool, error) { return s.isNode(ctx, a) })
	for range c.times {
		if err := ctx.Err(); err != nil {
			return err
		}
		attempt, err := client.Call(traffic.Target{Proto: c.proto, Addr: c.to.addr})
		if err == nil {
			err = judge.add(attempt)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", c, err)
		}
	}
	if err := judge.end(); err != nil {
		return fmt.Errorf("%s: %w", c, err)
	}
	return nil
}
