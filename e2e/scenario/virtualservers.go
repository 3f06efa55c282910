package scenario

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// virtualServers checks a node's table of virtual servers.
type virtualServers struct {
	on         string
	parts      hasLacks
	exactly    []string
	hasExactly bool
}

func (p *parser) virtualServers(t *table) check {
	v := virtualServers{on: p.node(t), parts: p.hasLacks(t)}
	v.parts.has = p.entries(t.get("has"), "has", v.parts.has)
	v.parts.lacks = p.entries(t.get("lacks"), "lacks", v.parts.lacks)
	if n := t.get("exactly"); n != nil {
		v.hasExactly = true
		v.exactly = p.entries(n, "exactly", p.texts(n, "exactly")) // An empty list means an empty table.
	}
	if v.parts.empty() && !v.hasExactly {
		p.fault(t.node, `virtual-servers checks nothing; add has, lacks or exactly, such as has: ["-A -t ${cluster1:80} -s rr"]`)
	}
	return v
}

// entries brings the lines of the file into the form in which they are compared.
func (p *parser) entries(n *yaml.Node, what string, lines []string) []string {
	var entries []string
	for i, line := range lines {
		entry, err := normalize(line)
		if err != nil && line != "" {
			p.fault(target(n.Content[i]), "%s has %q, which ipvsadm -Sn would not print: %v", what, line, err)
			continue
		}
		entries = append(entries, entry)
	}
	return entries
}

func (v virtualServers) try(ctx context.Context, s *session) error {
	have, err := s.virtualServers(ctx, v.on)
	if err != nil {
		return err
	}
	err = v.parts.compare(func(line string) bool { return slices.Contains(have, line) }, shortTable(have))
	if err == nil && v.hasExactly {
		err = v.compareAll(slices.DeleteFunc(have, isKubernetes))
	}
	if err != nil {
		return fmt.Errorf("virtual-servers on %s: %w", v.on, err)
	}
	return nil
}

// virtualServers reads a node's table.
func (s *session) virtualServers(ctx context.Context, node string) ([]string, error) {
	output, err := s.output(ctx, node, "ipvsadm -Sn")
	if err != nil {
		return nil, err
	}
	var table []string
	for line := range strings.Lines(output) {
		if line = strings.TrimSpace(line); line == "" {
			continue
		}
		entry, err := normalize(line)
		if err != nil {
			return nil, fmt.Errorf("ipvsadm -Sn on %s printed %q: %w", node, line, err)
		}
		table = append(table, entry)
	}
	return table, nil
}

// isKubernetes says whether a line belongs to the API server's own Service.
func isKubernetes(line string) bool {
	return strings.Contains(line, " -t 10.96.0.1:443 ") || strings.Contains(line, " -t [fd00:96::1]:443 ")
}

func (v virtualServers) compareAll(have []string) error {
	var wrong []string
	for _, line := range v.exactly {
		if !slices.Contains(have, line) {
			wrong = append(wrong, fmt.Sprintf("%q is missing", line))
		}
	}
	for _, line := range have {
		if !slices.Contains(v.exactly, line) {
			wrong = append(wrong, fmt.Sprintf("%q is too many", line))
		}
	}
	if wrong == nil {
		return nil
	}
	return failf("want exactly %d lines, but %s; saw %s", len(v.exactly), strings.Join(wrong, ", "), shortTable(have))
}

func shortTable(lines []string) string {
	if len(lines) == 0 {
		return "an empty table"
	}
	return short(strings.Join(lines, "; "))
}
