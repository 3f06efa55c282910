package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"go.yaml.in/yaml/v3"
)

// patience is how long a check is tried again unless the file says otherwise. pause lies between two tries.
const (
	patience = 5 * time.Second
	pause    = 100 * time.Millisecond
)

// action is a step that does something, or that checks something which cannot be tried again.
type action interface {
	do(ctx context.Context, s *session) error
}

// check is a step that is tried again until it holds. A *failure says what was wanted and what was seen; any other
// error ends the file as an `error`.
type check interface {
	try(ctx context.Context, s *session) error
}

// step is one step of a file: an action or a check.
type step struct {
	line   int
	action action
	check  check
	timing timing
}

// timing is how long a check may take to hold, and how long it must go on to hold.
type timing struct{ within, lasting time.Duration }

// timing reads `within` and `for`. With `for` alone the check must hold at once.
func (p *parser) timing(t *table) timing {
	within, lasting := t.get("within"), t.get("for")
	w := timing{within: patience, lasting: p.duration(lasting, "for")}
	if lasting != nil {
		w.within = 0
	}
	if within != nil {
		w.within = p.duration(within, "within")
	}
	return w
}

// failure is something that a user would see and that the file does not want.
type failure struct {
	what  string
	final bool // trying again cannot help
}

func (f *failure) Error() string { return f.what }

func failf(format string, args ...any) error {
	return &failure{what: fmt.Sprintf(format, args...)}
}

// finally makes a failure one that is not tried again.
func finally(err error) error {
	var f *failure
	if errors.As(err, &f) {
		f.final = true
	}
	return err
}

// run does the step.
func (st step) run(ctx context.Context, s *session) error {
	if st.action != nil {
		return st.action.do(ctx, s)
	}
	if err := st.await(ctx, s); err != nil {
		return err
	}
	return st.last(ctx, s)
}

// await tries until the check holds or `within` is over. A try that was begun in time counts.
func (st step) await(ctx context.Context, s *session) error {
	end := time.Now().Add(s.slowed(st.timing.within))
	for {
		err := st.check.try(ctx, s)
		var f *failure
		if !errors.As(err, &f) || f.final || !time.Now().Before(end) {
			return err
		}
		if err := sleep(ctx, pause); err != nil {
			return err
		}
	}
}

// last tries again and again for the time of `for`.
func (st step) last(ctx context.Context, s *session) error {
	begun, lasting := time.Now(), s.slowed(st.timing.lasting)
	for time.Since(begun) < lasting {
		if err := sleep(ctx, pause); err != nil {
			return err
		}
		err := st.check.try(ctx, s)
		var f *failure
		if errors.As(err, &f) {
			return failf("held for %s of %s, then: %s", time.Since(begun).Round(pause), lasting, f.what)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// sleep waits, or returns early with the context's error.
func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}

// kinds are the steps of the form, in the order of its page.
func kinds() []string {
	return []string{
		"apply", "slice", "delete", "proxy", "run", "hold", "close", "load", "udp-stream", "wait", "mark",
		"connect", "held", "http", "virtual-servers", "addresses", "events", "unchanged",
	}
}

// step reads one item of the list of steps.
func (p *parser) step(n *yaml.Node) (step, bool) {
	if n.Kind != yaml.MappingNode || len(n.Content) == 0 {
		p.fault(n, "a step is %s; write a map with one key, such as wait: 2s", orEmpty(n))
		return step{}, false
	}
	kind, body := target(n.Content[0]), target(n.Content[1])
	if len(n.Content) > 2 {
		p.fault(n.Content[2], "the step %s has a second key %q; put it inside the step's own map, or begin a new step with a dash",
			kind.Value, n.Content[2].Value)
		return step{}, false
	}
	s := step{line: kind.Line}
	before := len(p.faults)
	p.readStep(kind, body, &s)
	return s, len(p.faults) == before
}

func (p *parser) readStep(kind, body *yaml.Node, s *step) {
	switch kind.Value {
	case "apply":
		s.action = p.apply(body)
	case "slice":
		s.action = p.slice(body)
	case "delete":
		s.action = p.delete(body)
	case "proxy":
		s.action = p.proxyStep(body)
	case "run":
		s.action = p.command(body)
	case "hold":
		s.action = p.hold(body)
	case "close":
		s.action = p.closeHeld(body)
	case "load":
		p.load(body, s)
	case "udp-stream":
		p.stream(body, s)
	case "wait":
		s.action = wait(p.duration(body, "wait"))
	case "mark":
		s.action = p.mark(body)
	case "connect":
		p.checkStep(body, "connect", s, p.connect)
	case "held":
		p.checkStep(body, "held", s, p.held)
	case "http":
		p.checkStep(body, "http", s, p.http)
	case "virtual-servers":
		p.checkStep(body, "virtual-servers", s, p.virtualServers)
	case "addresses":
		p.checkStep(body, "addresses", s, p.addresses)
	case "events":
		p.checkStep(body, "events", s, p.events)
	case "unchanged":
		p.checkStep(body, "unchanged", s, p.unchanged)
	default:
		p.fault(kind, "there is no step %q; %s", kind.Value, suggest(kind.Value, kinds()))
	}
}

// checkStep reads a step that is tried again until it holds.
func (p *parser) checkStep(body *yaml.Node, what string, s *step, read func(*table) check) {
	t := p.table(body, what)
	s.check = read(t)
	s.timing = p.timing(t)
	t.done()
	p.checks++
}

// wait lets time pass.
type wait time.Duration

func (w wait) do(ctx context.Context, s *session) error {
	return sleep(ctx, s.slowed(time.Duration(w)))
}
