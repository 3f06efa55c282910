package scenario

import (
	"cmp"
	"context"
	"fmt"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// stream reads either form of the step: the begin of a stream of datagrams or its end.
func (p *parser) stream(n *yaml.Node, s *step) {
	t := p.table(n, "udp-stream")
	if t.get("stop") != nil {
		s.check = p.streamStop(t)
		s.timing = p.stopTiming(t)
	} else {
		s.action = p.streamStart(t)
	}
	t.done()
}

// streamStart begins a stream.
type streamStart struct {
	name, from string
	options    traffic.StreamOptions
}

func (p *parser) streamStart(t *table) action {
	st := streamStart{
		name: p.text(t.need("name", "u1"), "name"),
		from: p.host(t.need("from", "a1"), "from", "host", anyHost),
	}
	to := p.destination(t.need("to", `"cluster1:53"`))
	st.options = traffic.StreamOptions{
		To:    traffic.Target{Proto: traffic.UDP, Addr: to.addr},
		Port:  p.port(t.need("bind", "40053"), "bind"),
		Every: p.duration(t.need("every", "100ms"), "every"),
	}
	if st.name != "" {
		p.begin("udp-stream", st.name, t.node)
	}
	return st
}

func (st streamStart) do(_ context.Context, s *session) error {
	client, err := s.client(st.from)
	if err != nil {
		return err
	}
	stream, err := client.StartStream(st.options)
	if err != nil {
		return fmt.Errorf("udp-stream %s: %w", st.name, err)
	}
	s.streams[st.name] = stream
	return nil
}

// streamStop ends a stream and checks what it saw.
type streamStop struct {
	name string
	lost *comparison
	last string
}

func (p *parser) streamStop(t *table) check {
	n := t.get("stop")
	st := streamStop{name: p.text(n, "stop")}
	p.refer("udp-stream", st.name, n, true)
	p.checks++
	expect := t.need("expect", `{lost: "<=1", last: b1}`)
	if expect == nil {
		return st
	}
	e := p.table(expect, "expect")
	st.lost = p.comparison(e.get("lost"), "lost")
	if last := e.get("last"); last != nil {
		st.last = p.host(last, "last", "host", anyHost)
	}
	if e.node.Kind == yaml.MappingNode && len(e.keys) == 0 {
		p.fault(e.node, `expect is empty; write for example {lost: "<=1", last: b1}`)
	}
	e.done()
	return st
}

// try ends the stream as soon as the last answer is of the wanted host; until then more answers may help. What is
// lost is known only when the stream has ended.
func (st streamStop) try(_ context.Context, s *session) error {
	stream := s.streams[st.name]
	if seen := stream.Seen(); st.last != "" && seen.Last != st.last {
		return st.failure(seen)
	}
	seen := stream.Stop()
	delete(s.streams, st.name)
	if (st.last != "" && seen.Last != st.last) || (st.lost != nil && !st.lost.holds(seen.Lost())) {
		return finally(st.failure(seen))
	}
	return nil
}

func (st streamStop) failure(seen traffic.StreamSeen) error {
	var want []string
	if st.lost != nil {
		want = append(want, "lost "+st.lost.text)
	}
	if st.last != "" {
		want = append(want, "last "+st.last)
	}
	return failf("udp-stream %s: want %s; saw %d of %d lost, last %s",
		st.name, strings.Join(want, ", "), seen.Lost(), seen.Sent, cmp.Or(seen.Last, "nobody"))
}
