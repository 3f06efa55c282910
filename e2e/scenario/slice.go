package scenario

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// slice makes one EndpointSlice of a Service, or replaces it.
type slice struct {
	service, id string
	portName    string
	port        uint16
	proto       traffic.Proto
	endpoints   []endpoint
}

// endpoint is one host in a slice.
type endpoint struct {
	host                        string
	ready, serving, terminating bool
	zones, nodes                []string // hints
}

func (p *parser) slice(n *yaml.Node) action {
	t := p.table(n, "slice")
	s := slice{
		service: p.text(t.need("service", "web"), "service"),
		port:    p.port(t.need("port", "8080"), "port"),
		proto:   p.proto(t.get("proto")),
		id:      "0",
	}
	if name := t.get("name"); name != nil && name.Value != "" { // The only port of a Service needs no name.
		s.portName = p.text(name, "name")
	}
	if id := t.get("id"); id != nil {
		s.id = p.text(id, "id")
	}
	s.endpoints = p.endpoints(t)
	p.hints(t.get("hints"), "hints", s.endpoints, func(e *endpoint, to string) { e.zones = append(e.zones, to) })
	p.hints(t.get("nodeHints"), "nodeHints", s.endpoints, func(e *endpoint, to string) { e.nodes = append(e.nodes, to) })
	t.done()
	return s
}

// endpoints reads the lists of hosts, each of which has other conditions (KEP-1672).
func (p *parser) endpoints(t *table) []endpoint {
	var all []endpoint
	for _, list := range []struct {
		key        string
		conditions endpoint
	}{
		{"ready", endpoint{ready: true, serving: true}},
		{"notready", endpoint{}},
		{"terminating", endpoint{serving: true, terminating: true}},
		{"stopped", endpoint{terminating: true}},
		{"hosts", endpoint{ready: true, serving: true}},
	} {
		n := t.get(list.key)
		if n == nil {
			continue
		}
		kind, fits := "pod", HostSpec.IsPod
		if list.key == "hosts" {
			kind, fits = "node", HostSpec.IsNode
		}
		for _, name := range p.hosts(n, list.key, kind, fits) {
			if slices.ContainsFunc(all, func(e endpoint) bool { return e.host == name }) {
				p.fault(n, "%s stands in two lists of the slice; leave it in one", name)
			}
			e := list.conditions
			e.host = name
			all = append(all, e)
		}
	}
	return all
}

// hints reads a map from endpoints to where they are meant for.
func (p *parser) hints(n *yaml.Node, what string, endpoints []endpoint, add func(*endpoint, string)) {
	if n == nil {
		return
	}
	t := p.table(n, what)
	for i := range endpoints {
		value := t.get(endpoints[i].host)
		if value == nil {
			continue
		}
		to := p.text(value, "the hint of "+endpoints[i].host)
		if what == "nodeHints" && to != "" {
			p.checkHost(value, what, to, "node", HostSpec.IsNode)
		}
		add(&endpoints[i], to)
	}
	t.done()
}

func (sl slice) name() string { return fmt.Sprintf("%s-slice-%s", sl.service, sl.id) }

func (sl slice) do(ctx context.Context, s *session) error {
	if err := s.world.Apply(ctx, sl.object(s.family)); err != nil {
		return fmt.Errorf("slice of %s: %w", sl.service, err)
	}
	if !slices.Contains(s.slices[sl.service], sl.name()) {
		s.slices[sl.service] = append(s.slices[sl.service], sl.name())
	}
	return nil
}

func (sl slice) object(f Family) map[string]any {
	addressType := map[Family]string{IPv4: "IPv4", IPv6: "IPv6"}[f]
	endpoints := []any{}
	for _, e := range sl.endpoints {
		endpoints = append(endpoints, e.object(f))
	}
	return map[string]any{
		"apiVersion": "discovery.k8s.io/v1",
		"kind":       "EndpointSlice",
		"metadata": map[string]any{
			"name": sl.name(), "namespace": "default",
			"labels": map[string]any{"kubernetes.io/service-name": sl.service},
		},
		"addressType": addressType,
		"ports": []any{map[string]any{
			"name": sl.portName, "port": int64(sl.port), "protocol": strings.ToUpper(string(sl.proto)),
		}},
		"endpoints": endpoints,
	}
}

func (e endpoint) object(f Family) map[string]any {
	host, _ := FindHost(e.host)
	node := host.Node
	if host.IsNode() {
		node = host.Name
	}
	object := map[string]any{
		"addresses":  []any{host.Addr(f).String()},
		"nodeName":   node,
		"conditions": map[string]any{"ready": e.ready, "serving": e.serving, "terminating": e.terminating},
	}
	hints := map[string]any{}
	maps.Copy(hints, hint("forZones", e.zones))
	maps.Copy(hints, hint("forNodes", e.nodes))
	if len(hints) > 0 {
		object["hints"] = hints
	}
	return object
}

func hint(key string, names []string) map[string]any {
	if names == nil {
		return nil
	}
	list := []any{}
	for _, name := range names {
		list = append(list, map[string]any{"name": name})
	}
	return map[string]any{key: list}
}
