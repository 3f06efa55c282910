package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// text reads a string; numbers and the like are taken as they are written.
func (r *reader) text(n *yaml.Node, what string) string {
	if n == nil {
		return ""
	}
	if n.Kind != yaml.ScalarNode || n.Tag == "!!null" || n.Value == "" {
		r.fault(n, "%s is %s; write a word or a text", what, orEmpty(n))
		return ""
	}
	return n.Value
}

func orEmpty(n *yaml.Node) string {
	if n.Kind == yaml.ScalarNode && n.Value == "" {
		return "empty"
	}
	return sample(n)
}

// texts reads a list of strings. Only a list that is not there is nil.
func (r *reader) texts(n *yaml.Node, what string) []string {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.SequenceNode {
		r.fault(n, "%s is %s; write a list, such as %s: [%s]", what, orEmpty(n), what, strings.Trim(sample(n), `"`))
		return nil
	}
	list := []string{}
	for _, item := range n.Content {
		list = append(list, r.text(target(item), "an item of "+what))
	}
	return list
}

// filled is texts for a list that says nothing when it is empty.
func (r *reader) filled(n *yaml.Node, what string) []string {
	list := r.texts(n, what)
	if list != nil && len(list) == 0 {
		r.fault(n, "%s is empty and says nothing; name something or leave it out", what)
		return nil
	}
	return list
}

// number reads a whole number of a range.
func (r *reader) number(n *yaml.Node, what string, low, high int) int {
	if n == nil {
		return 0
	}
	v, err := strconv.Atoi(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || v < low || v > high {
		r.fault(n, "%s is %s; write a whole number from %d to %d", what, orEmpty(n), low, high)
		return 0
	}
	return v
}

func (r *reader) port(n *yaml.Node, what string) uint16 { return uint16(r.number(n, what, 1, 65535)) }

// truth reads true or false.
func (r *reader) truth(n *yaml.Node, what string) bool {
	if n != nil && n.Value != "true" && n.Value != "false" {
		r.fault(n, "%s is %s; write true or false", what, orEmpty(n))
	}
	return n != nil && n.Value == "true"
}

// duration reads a time above 0.
func (r *reader) duration(n *yaml.Node, what string) time.Duration {
	if n == nil {
		return 0
	}
	d, err := time.ParseDuration(n.Value)
	if n.Kind != yaml.ScalarNode || err != nil || d <= 0 {
		r.fault(n, "%s is %s; write a time with its unit, such as 300ms, 2s or 1m", what, orEmpty(n))
		return 0
	}
	return d
}

// oneOf reads one of a few words.
func (r *reader) oneOf(n *yaml.Node, what string, words ...string) string {
	word := r.text(n, what)
	if word != "" && !slices.Contains(words, word) {
		r.fault(n, "%s is %q; %s", what, word, suggest(word, words))
		return ""
	}
	return word
}

// proto reads a protocol in either case; not there is TCP.
func (r *reader) proto(n *yaml.Node) traffic.Proto {
	if n == nil {
		return traffic.TCP
	}
	lower := *n
	lower.Value = strings.ToLower(n.Value)
	return traffic.Proto(r.oneOf(&lower, "proto", "tcp", "udp", "sctp"))
}

// host reads the name of a host that satisfies a condition.
func (r *reader) host(n *yaml.Node, what, kind string, fits func(HostSpec) bool) string {
	name := r.text(n, what)
	if name != "" {
		r.checkHost(n, what, name, kind, fits)
	}
	return name
}

func (r *reader) checkHost(n *yaml.Node, what, name, kind string, fits func(HostSpec) bool) {
	var names []string
	for _, h := range Hosts() {
		if fits(h) {
			names = append(names, h.Name)
		}
	}
	if !slices.Contains(names, name) {
		r.fault(n, "%s names %q, which is no %s; %s", what, name, kind, suggest(name, names))
	}
}

func anyHost(HostSpec) bool { return true }

// hosts reads a list of names of hosts, each once.
func (r *reader) hosts(n *yaml.Node, what, kind string, fits func(HostSpec) bool) []string {
	names := r.texts(n, what)
	for i, name := range names {
		r.checkHost(n, what, name, kind, fits)
		if slices.Contains(names[:i], name) {
			r.fault(n, "%s names %s twice; once is enough", what, name)
		}
	}
	return names
}

// destination is where a client calls, as the file writes it and as an address.
type destination struct {
	text string
	addr netip.AddrPort
}

// destination reads `to`: a name or a literal address, and a port.
func (r *reader) destination(n *yaml.Node) destination {
	text := r.text(n, "to")
	if text == "" {
		return destination{}
	}
	if at, err := netip.ParseAddrPort(text); err == nil {
		return destination{text, netip.AddrPortFrom(at.Addr().Unmap(), at.Port())}
	}
	name, port, ok := strings.Cut(text, ":")
	number, err := strconv.ParseUint(port, 10, 16)
	if !ok || err != nil || number == 0 {
		r.fault(n, `to is %q; write a name or an address and a port, such as "vip1:80", "192.0.2.11:30080" or "[2001:db8::1]:80"`, text)
		return destination{}
	}
	addr, ok := Address(name, r.family)
	if !ok {
		r.fault(n, "to names %q, which is unknown; %s", name, suggest(name, names()))
	}
	return destination{text, netip.AddrPortFrom(addr, uint16(number))}
}

// comparison is a bound on a count: a number, or a comparison with one.
type comparison struct {
	text  string
	holds func(int) bool
}

// comparison reads `0` or `"<=2"`.
func (r *reader) comparison(n *yaml.Node, what string) *comparison {
	if n == nil {
		return nil
	}
	text := strings.ReplaceAll(n.Value, " ", "")
	digits := strings.TrimLeft(text, "<>=")
	bound, err := strconv.Atoi(digits)
	holds, ok := map[string]func(int) bool{
		"": func(v int) bool { return v == bound }, "=": func(v int) bool { return v == bound },
		"==": func(v int) bool { return v == bound },
		"<=": func(v int) bool { return v <= bound }, "<": func(v int) bool { return v < bound },
		">=": func(v int) bool { return v >= bound }, ">": func(v int) bool { return v > bound },
	}[strings.TrimSuffix(text, digits)]
	if n.Kind != yaml.ScalarNode || err != nil || bound < 0 || !ok {
		r.fault(n, `%s is %s; write a number or a comparison, such as 0 or "<=2"`, what, orEmpty(n))
		return nil
	}
	return &comparison{text: text, holds: holds}
}

// fields reads a map of any content, such as fields of the proxy's configuration.
func (r *reader) fields(n *yaml.Node, what string) map[string]any {
	if n == nil {
		return nil
	}
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s is %s; write a map of fields", what, orEmpty(n))
		return nil
	}
	value, err := plain(n)
	if err != nil {
		r.fault(n, "%s: %v", what, err)
	}
	fields, _ := value.(map[string]any)
	return fields
}

// plain makes of a node what JSON can hold. Dates stay texts.
func plain(n *yaml.Node) (any, error) { return (&copier{left: 100_000}).value(n) }

// copier makes plain values of nodes, but not without end: an alias may lead back into itself.
type copier struct{ left int }

func (c *copier) value(n *yaml.Node) (any, error) {
	n = target(n)
	if c.left--; c.left < 0 {
		return nil, fmt.Errorf("line %d: too large; does an alias lead back into itself?", n.Line)
	}
	switch n.Kind {
	case yaml.MappingNode:
		return c.table(n)
	case yaml.SequenceNode:
		return c.list(n)
	}
	if n.Tag == "!!timestamp" || n.Tag == "!!binary" {
		return n.Value, nil
	}
	var value any
	err := n.Decode(&value)
	return value, err
}

func (c *copier) list(n *yaml.Node) ([]any, error) {
	list := []any{}
	for _, item := range n.Content {
		value, err := c.value(item)
		if err != nil {
			return nil, err
		}
		list = append(list, value)
	}
	return list, nil
}

func (c *copier) table(n *yaml.Node) (map[string]any, error) {
	m := map[string]any{}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key := target(n.Content[i])
		if key.Kind != yaml.ScalarNode {
			return nil, fmt.Errorf("line %d: a key must be a word", key.Line)
		}
		if _, twice := m[key.Value]; twice {
			return nil, fmt.Errorf("line %d: the key %q stands there twice", key.Line, key.Value)
		}
		value, err := c.value(n.Content[i+1])
		if err != nil {
			return nil, err
		}
		m[key.Value] = value
	}
	return m, nil
}
