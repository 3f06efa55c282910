package scenario

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// Fault is one thing that is wrong with a file, said so that whoever wrote the file can repair it.
type Fault struct {
	Path string
	Line int // counted from 1; 0 for the file as a whole
	What string
}

func (f *Fault) Error() string {
	if f.Line == 0 {
		return fmt.Sprintf("%s: %s", f.Path, f.What)
	}
	return fmt.Sprintf("%s:%d: %s", f.Path, f.Line, f.What)
}

// reader reads one file for one family and gathers its faults.
type reader struct {
	path   string
	family Family
	faults []*Fault
}

// fault notes what is wrong with a part of the file.
func (r *reader) fault(n *yaml.Node, format string, args ...any) {
	r.faultAt(n.Line, format, args...)
}

func (r *reader) faultAt(line int, format string, args ...any) {
	f := &Fault{Path: r.path, Line: line, What: fmt.Sprintf(format, args...)}
	if !slices.ContainsFunc(r.faults, func(g *Fault) bool { return *g == *f }) {
		r.faults = append(r.faults, f)
	}
}

// err is every fault, in the order of the file, or nil.
func (r *reader) err() error {
	slices.SortStableFunc(r.faults, func(a, b *Fault) int { return a.Line - b.Line })
	errs := make([]error, len(r.faults))
	for i, f := range r.faults {
		errs[i] = f
	}
	return errors.Join(errs...)
}

// target follows an alias to what it stands for.
func target(n *yaml.Node) *yaml.Node {
	for n != nil && n.Kind == yaml.AliasNode {
		n = n.Alias
	}
	return n
}

// sample is a short form of a node for a message.
func sample(n *yaml.Node) string {
	switch n.Kind {
	case yaml.MappingNode:
		return "a map"
	case yaml.SequenceNode:
		return "a list"
	}
	if n.Tag == "!!null" {
		return "nothing"
	}
	text, _, more := strings.Cut(n.Value, "\n")
	if len(text) > 40 || more {
		text = text[:min(len(text), 40)] + "…"
	}
	return fmt.Sprintf("%q", text)
}

// table reads a map whose keys are known.
type table struct {
	*reader
	node  *yaml.Node
	what  string // what the map is, for messages
	keys  []*yaml.Node
	value map[string]*yaml.Node
	known []string
}

// table begins to read a map. What is no map is a fault and is read as an empty one.
func (r *reader) table(n *yaml.Node, what string) *table {
	n = target(n)
	t := &table{reader: r, node: n, what: what, value: map[string]*yaml.Node{}}
	if n.Kind != yaml.MappingNode {
		r.fault(n, "%s is %s; write a map, such as {key: value}", what, sample(n))
		return t
	}
	for i := 0; i+1 < len(n.Content); i += 2 {
		key, value := target(n.Content[i]), target(n.Content[i+1])
		if _, twice := t.value[key.Value]; twice {
			r.fault(key, "%s has the key %q twice; leave one", what, key.Value)
			continue
		}
		t.keys = append(t.keys, key)
		t.value[key.Value] = value
	}
	return t
}

// get returns the value of a key, nil if it is not there, and makes the key a known one.
func (t *table) get(key string) *yaml.Node {
	if !slices.Contains(t.known, key) {
		t.known = append(t.known, key)
	}
	return t.value[key]
}

// need is get for a key that must be there.
func (t *table) need(key, example string) *yaml.Node {
	n := t.get(key)
	if n == nil && t.node.Kind == yaml.MappingNode {
		t.fault(t.node, "%s lacks %q; write for example %s: %s", t.what, key, key, example)
	}
	return n
}

// done notes every key that nobody asked for.
func (t *table) done() {
	for _, key := range t.keys {
		if !slices.Contains(t.known, key.Value) {
			t.fault(key, "%s has the unknown key %q; %s", t.what, key.Value, suggest(key.Value, t.known))
		}
	}
}

// suggest tells what to write instead of an unknown word.
func suggest(word string, known []string) string {
	best, least := "", (len(word)+4)/3
	for _, k := range known {
		if d := distance(word, k); d < least {
			best, least = k, d
		}
	}
	if best != "" {
		return fmt.Sprintf("did you mean %q? Known: %s", best, strings.Join(known, ", "))
	}
	return "known: " + strings.Join(known, ", ")
}

// distance is the number of letters to change, add or leave out, and of neighbours to swap, between two words.
func distance(a, b string) int {
	rows := make([][]int, len(a)+1)
	for i := range rows {
		rows[i] = make([]int, len(b)+1)
		rows[i][0] = i
	}
	for j := range rows[0] {
		rows[0][j] = j
	}
	for i := 1; i <= len(a); i++ {
		for j := 1; j <= len(b); j++ {
			change := rows[i-1][j-1]
			if a[i-1] != b[j-1] {
				change++
			}
			rows[i][j] = min(change, rows[i-1][j]+1, rows[i][j-1]+1)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				rows[i][j] = min(rows[i][j], rows[i-2][j-2]+1)
			}
		}
	}
	return rows[len(a)][len(b)]
}
