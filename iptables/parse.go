package iptables

import (
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// parseSave reads what iptables-save printed and keeps, for each table, the
// chains and jumps that are ours. Lines it does not know are other people's.
func parseSave(text string) map[string]*held {
	found := map[string]*held{}
	var table *held
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\r\n")
		switch {
		case strings.HasPrefix(line, "*"):
			table = &held{chains: map[string][]string{}}
			found[line[1:]] = table
		case table == nil:
		case strings.HasPrefix(line, ":"+Prefix):
			name, _, _ := strings.Cut(line[1:], " ")
			table.chains[name] = []string{}
		case strings.HasPrefix(line, "-A "):
			table.add(line[len("-A "):])
		}
	}
	return found
}

// add takes a rule, given as "CHAIN SPECIFICATION", if it is ours.
func (h *held) add(line string) {
	chain, rule, _ := strings.Cut(line, " ")
	if strings.HasPrefix(chain, Prefix) {
		h.chains[chain] = append(h.chains[chain], rule)
		return
	}
	w := words(rule)
	to := after(w, "-j")
	if after(w, "--comment") != Comment || !strings.HasPrefix(to, Prefix) {
		return
	}
	j := newJump(state.Jump{From: chain, To: to})
	// Some versions print the comment in quotes that it does not need.
	if strings.Join(w, " ") != j.rule {
		j.rule = rule
	}
	h.jumps = append(h.jumps, j)
}

// after returns the word that follows an option, or nothing.
func after(w []string, option string) string {
	i := slices.Index(w, option)
	if i < 0 || i+1 >= len(w) {
		return ""
	}
	return w[i+1]
}

// words splits a rule as iptables-restore does: at blanks that do not stand in
// double quotes; a backslash takes the next character as it is.
func words(rule string) []string {
	var (
		list           []string
		word           strings.Builder
		quoted, inside bool
	)
	for i := 0; i < len(rule); i++ {
		c := rule[i]
		switch {
		case c == '\\' && i+1 < len(rule):
			i++
			word.WriteByte(rule[i])
			inside = true
		case c == '"':
			quoted = !quoted
			inside = true
		case c == ' ' && !quoted:
			if inside {
				list = append(list, word.String())
			}
			word.Reset()
			inside = false
		default:
			word.WriteByte(c)
			inside = true
		}
	}
	if inside {
		list = append(list, word.String())
	}
	return list
}
