package scenario

import (
	"context"
	"fmt"
	"slices"
)

// events checks the Kubernetes Events about an object.
type events struct {
	on  Ref
	has []string
}

func (p *parser) events(t *table) check {
	var e events
	if n := t.need("on", "service/web"); n != nil {
		e.on = p.parseRef(n, "on")
	}
	if n := t.need("has", "[Reason]"); n != nil {
		e.has = p.filled(n, "has")
	}
	return e
}

func (e events) try(ctx context.Context, s *session) error {
	reasons, err := s.world.Events(ctx, e.on)
	if err != nil {
		return fmt.Errorf("events about %s: %w", e.on, err)
	}
	err = hasLacks{has: e.has}.compare(func(part string) bool { return slices.Contains(reasons, part) }, listed(reasons))
	if err != nil {
		return fmt.Errorf("events about %s: %w", e.on, err)
	}
	return nil
}
