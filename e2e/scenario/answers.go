package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// answers is what a connect expects.
type answers struct {
	results []traffic.Result // any of these will do
	only    []string
	among   []string
	share   *share
	source  string // a host, an address, node or vip
	max     time.Duration
	same    bool
}

// share is how the answers are spread over hosts: exact counts, or percentages give or take a tolerance.
type share struct {
	hosts     []string
	amount    map[string]int
	percent   bool
	tolerance int // percentage points
}

// answers reads the `expect` of a connect of so many connections.
func (p *parser) answers(n *yaml.Node, times int) answers {
	t := p.table(n, "expect")
	var a answers
	a.results = p.results(t.get("result"))
	a.only = p.answerers(t.get("only"), "only")
	a.among = p.answerers(t.get("among"), "among")
	if a.only != nil && times < len(a.only) {
		p.fault(t.get("only"), "only names %d hosts, each of which must answer, but times is %d; write times: %d or more, or among instead of only",
			len(a.only), times, len(a.only))
	}
	if share := t.get("share"); share != nil {
		a.share = p.share(share, times)
	}
	a.source = p.source(t.get("source"))
	a.max = p.duration(t.get("max"), "max")
	if same := t.get("same"); same != nil {
		if a.same = p.truth(same, "same"); !a.same {
			p.fault(same, "same is %s; write same: true or leave it out", sample(same))
		}
	}
	t.done()
	p.answersMakeSense(t, a)
	return a
}

// answersMakeSense finds expectations that cannot hold, or that hold always.
func (p *parser) answersMakeSense(t *table, a answers) {
	if t.node.Kind == yaml.MappingNode && len(t.keys) == 0 {
		p.fault(t.node, "expect is empty and would always hold; write for example {result: ok}")
	}
	if slices.Contains(a.results, traffic.OK) {
		return
	}
	for _, key := range []string{"only", "among", "share", "source", "same"} {
		if t.get(key) != nil {
			p.fault(t.get(key), "%s looks at answers, but result allows none; take one of the two out, or add ok to result", key)
		}
	}
}

// answerers reads a list of hosts, any of which may answer.
func (p *parser) answerers(n *yaml.Node, what string) []string {
	if n == nil || p.filled(n, what) == nil {
		return nil
	}
	return p.hosts(n, what, "host", anyHost)
}

func (p *parser) results(n *yaml.Node) []traffic.Result {
	if n == nil {
		return []traffic.Result{traffic.OK}
	}
	items := []*yaml.Node{n}
	if n.Kind == yaml.SequenceNode {
		p.filled(n, "result")
		items = n.Content
	}
	var results []traffic.Result
	for _, item := range items {
		results = append(results, traffic.Result(p.oneOf(target(item), "result", "ok", "refused", "timeout")))
	}
	return results
}

func (p *parser) source(n *yaml.Node) string {
	word := p.text(n, "source")
	known := append([]string{"node", "vip"}, names()...)
	if word != "" && !slices.Contains(known, word) && !isAddress(word) {
		p.fault(n, "source is %q, neither an address nor a known name; %s", word, suggest(word, known))
	}
	return word
}

func (p *parser) share(n *yaml.Node, times int) *share {
	t := p.table(n, "share")
	s := &share{amount: map[string]int{}, tolerance: p.percentage(t.get("tolerance"), "tolerance")}
	total := 0
	for _, key := range t.keys {
		if key.Value == "tolerance" {
			continue
		}
		p.checkHost(key, "share", key.Value, "host", anyHost)
		value := t.get(key.Value)
		isPercent := strings.HasSuffix(value.Value, "%")
		if len(s.hosts) > 0 && isPercent != s.percent {
			p.fault(value, "share mixes counts and percentages; write either {a1: 10, b1: 10} or {a1: 50%%, b1: 50%%, tolerance: 10%%}")
		}
		s.percent = isPercent
		s.hosts = append(s.hosts, key.Value)
		if isPercent {
			s.amount[key.Value] = p.percentage(value, "the share of "+key.Value)
		} else {
			s.amount[key.Value] = p.number(value, "the share of "+key.Value, 0, 10000)
		}
		total += s.amount[key.Value]
	}
	p.shareMakesSense(t, s, total, times)
	return s
}

func (p *parser) shareMakesSense(t *table, s *share, total, times int) {
	switch {
	case len(s.hosts) == 0:
		p.fault(t.node, "share names no host; write {a1: 10, b1: 10}")
	case s.percent && total > 100:
		p.fault(t.node, "the shares add up to %d%%; make it 100%% or less", total)
	case !s.percent && total > times:
		p.fault(t.node, "the shares add up to %d but times is %d; make them equal", total, times)
	case !s.percent && t.get("tolerance") != nil:
		p.fault(t.get("tolerance"), "a tolerance belongs to percentages; counts are exact")
	}
}

func (p *parser) percentage(n *yaml.Node, what string) int {
	if n == nil {
		return 0
	}
	number, isPercent := strings.CutSuffix(n.Value, "%")
	v, err := strconv.Atoi(number)
	if err != nil || !isPercent || v < 0 || v > 100 {
		p.fault(n, "%s is %s; write a whole percentage, such as 40%%", what, orEmpty(n))
	}
	return v
}

// String says what is wanted, for messages.
func (a answers) String() string {
	var parts []string
	add := func(format string, args ...any) { parts = append(parts, fmt.Sprintf(format, args...)) }
	if a.results[0] != traffic.OK || len(a.results) > 1 {
		var words []string
		for _, r := range a.results {
			words = append(words, string(r))
		}
		add("%s", strings.Join(words, " or "))
	}
	if a.only != nil {
		add("only %s", listed(a.only))
	}
	if a.among != nil {
		add("among %s", listed(a.among))
	}
	if a.share != nil {
		add("share %s", a.share)
	}
	if a.source != "" {
		add("source %s", a.source)
	}
	if a.max > 0 {
		add("slowest connect at most %s", a.max)
	}
	if a.same {
		add("one and the same backend")
	}
	if parts == nil {
		return "ok"
	}
	return strings.Join(parts, ", ")
}

func (s share) String() string {
	var parts []string
	for _, host := range s.hosts {
		unit := ""
		if s.percent {
			unit = "%"
		}
		parts = append(parts, fmt.Sprintf("%s %d%s", host, s.amount[host], unit))
	}
	if s.percent {
		parts = append(parts, fmt.Sprintf("give or take %d points", s.tolerance))
	}
	return strings.Join(parts, ", ")
}
