package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// load reads either form of the step: the begin of a load or its end.
func (p *parser) load(n *yaml.Node, s *step) {
	t := p.table(n, "load")
	if t.get("stop") != nil {
		s.check = p.loadStop(t)
		s.timing = p.stopTiming(t)
	} else {
		s.action = p.loadStart(t)
	}
	t.done()
}

// stopTiming reads `within` of a step that ends something: so long does it go on, if the check does not hold yet.
func (p *parser) stopTiming(t *table) timing {
	w := timing{within: patience}
	if n := t.get("within"); n != nil {
		w.within = p.duration(n, "within")
	}
	return w
}

// loadStart begins a load.
type loadStart struct {
	name, from string
	to         destination
	options    traffic.LoadOptions
}

func (p *parser) loadStart(t *table) action {
	l := loadStart{
		name: p.text(t.need("name", "l1"), "name"),
		from: p.host(t.need("from", "client"), "from", "host", anyHost),
		to:   p.destination(t.need("to", `"vip1:80"`)),
	}
	l.options = traffic.LoadOptions{
		To:        traffic.Target{Proto: p.proto(t.get("proto")), Addr: l.to.addr},
		Rate:      p.number(t.need("rate", "20"), "rate", 1, 1000),
		EveryPort: p.truth(t.get("every-port"), "every-port"),
	}
	if l.name != "" {
		p.begin("load", l.name, t.node)
	}
	return l
}

func (l loadStart) do(_ context.Context, s *session) error {
	client, err := s.client(l.from)
	if err != nil {
		return err
	}
	s.loads[l.name] = client.StartLoad(l.options)
	return nil
}

// loadStop ends a load and checks what it saw.
type loadStop struct {
	name       string
	errors     *comparison
	atLeast    int
	only       []string
	slowerThan []slower
}

// slower bounds the answers that took longer than a time.
type slower struct {
	than  time.Duration
	count *comparison
}

func (p *parser) loadStop(t *table) check {
	n := t.get("stop")
	l := loadStop{name: p.text(n, "stop")}
	p.refer("load", l.name, n, true)
	if n := t.need("expect", "{errors: 0, atLeast: 20}"); n != nil {
		p.loadExpect(n, &l)
	}
	p.checks++
	return l
}

func (p *parser) loadExpect(n *yaml.Node, l *loadStop) {
	t := p.table(n, "expect")
	l.errors = p.comparison(t.get("errors"), "errors")
	l.atLeast = p.number(t.get("atLeast"), "atLeast", 1, 1000000)
	l.only = p.answerers(t.get("only"), "only")
	if n := t.get("slower-than"); n != nil {
		l.slowerThan = p.slowerThan(n)
	}
	if t.node.Kind == yaml.MappingNode && len(t.keys) == 0 {
		p.fault(t.node, "expect is empty; write for example {errors: 0, atLeast: 20}")
	}
	t.done()
}

func (p *parser) slowerThan(n *yaml.Node) []slower {
	t := p.table(n, "slower-than")
	var all []slower
	for _, key := range t.keys {
		all = append(all, slower{
			than:  p.duration(key, "the time of slower-than"),
			count: p.comparison(t.get(key.Value), "the count of answers slower than "+key.Value),
		})
	}
	if len(all) == 0 && t.node.Kind == yaml.MappingNode {
		p.fault(n, "slower-than is empty; write {300ms: 0}")
	}
	return all
}

// try ends the load as soon as what it has seen is what is wanted. While it is not, more answers may help.
func (l loadStop) try(_ context.Context, s *session) error {
	load := s.loads[l.name]
	if err := l.compare(load.Seen()); err != nil {
		return err
	}
	seen := load.Stop()
	delete(s.loads, l.name)
	return finally(l.compare(seen))
}

func (l loadStop) compare(seen traffic.LoadSeen) error {
	var wrong []string
	add := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if l.errors != nil && !l.errors.holds(seen.Errors()) {
		add("want errors %s", l.errors.text)
	}
	if seen.Answers() < l.atLeast {
		add("want at least %d answers", l.atLeast)
	}
	if l.only != nil && onlyThese(l.only, seen.Answered) != nil {
		add("want answers of each of %s only", listed(l.only))
	}
	for _, bound := range l.slowerThan {
		if !bound.count.holds(countSlower(seen, bound.than)) {
			add("want %s answers slower than %s", bound.count.text, bound.than)
		}
	}
	if wrong == nil {
		return nil
	}
	return failf("load %s: %s; saw %s", l.name, strings.Join(wrong, ", "), summary(seen))
}

func countSlower(seen traffic.LoadSeen, than time.Duration) int {
	n := 0
	for _, took := range seen.Times {
		if took > than {
			n++
		}
	}
	return n
}

func summary(seen traffic.LoadSeen) string {
	text := fmt.Sprintf("%d answers of %s", seen.Answers(), counted(seen.Answered))
	if len(seen.Times) > 0 {
		text += fmt.Sprintf(", the slowest after %s", slices.Max(seen.Times).Round(time.Millisecond))
	}
	if seen.Errors() == 0 {
		return text + ", no errors"
	}
	for _, r := range slices.Sorted(maps.Keys(seen.Failed)) {
		text += fmt.Sprintf(", %d times %s", seen.Failed[r], r)
	}
	return text
}
