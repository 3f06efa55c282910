package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// What an unchanged step can look at.
const (
	watchServers   = "virtual-servers"
	watchAddresses = "addresses"
	watchSets      = "sets"
	watchRules     = "rules"
)

// mark begins to watch what later steps want to find unchanged.
type mark struct {
	name  string
	watch map[string][]string // what is watched, by node
}

func (p *parser) mark(n *yaml.Node) action {
	m := &mark{name: p.text(n, "mark"), watch: map[string][]string{}}
	if p.marks[m.name] != nil {
		p.fault(n, "there is a mark %s already; choose another name", m.name)
	}
	p.marks[m.name] = m
	return m
}

func (m *mark) do(ctx context.Context, s *session) error {
	for node, what := range m.watch {
		w, err := s.startWatch(ctx, node, what)
		if err != nil {
			return fmt.Errorf("mark %s on %s: %w", m.name, node, err)
		}
		s.marks[m.name+" "+node] = w
	}
	return nil
}

// unchanged checks that nothing was removed, added or made anew since a mark.
type unchanged struct {
	on, since string
	what      []string
}

func (p *parser) unchanged(t *table) check {
	u := unchanged{on: p.node(t)}
	all := []string{watchServers, watchAddresses, watchSets, watchRules}
	if n := t.need("what", "[virtual-servers, addresses]"); n != nil {
		u.what = p.filled(n, "what")
		for _, word := range u.what {
			if word != "" && !slices.Contains(all, word) {
				p.fault(n, "what names %q; %s", word, suggest(word, all))
			}
		}
	}
	n := t.need("since", "mark1")
	if u.since = p.text(n, "since"); u.since != "" {
		p.watchFrom(n, u)
	}
	return u
}

// watchFrom tells an earlier mark what to watch.
func (p *parser) watchFrom(n *yaml.Node, u unchanged) {
	m := p.marks[u.since]
	if m == nil {
		p.fault(n, "there is no mark %s before this line; add the step mark: %s", u.since, u.since)
		return
	}
	for _, word := range u.what {
		if !slices.Contains(m.watch[u.on], word) {
			m.watch[u.on] = append(m.watch[u.on], word)
		}
	}
}

func (u unchanged) try(ctx context.Context, s *session) error {
	changes, err := s.marks[u.since+" "+u.on].changes(ctx, u.what)
	if err != nil {
		return fmt.Errorf("unchanged on %s: %w", u.on, err)
	}
	if len(changes) == 0 {
		return nil
	}
	// What has changed stays changed.
	return finally(failf("unchanged on %s since %s: want no change, saw %s", u.on, u.since, short(strings.Join(changes, "; "))))
}
