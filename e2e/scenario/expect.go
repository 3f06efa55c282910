package scenario

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// short cuts a long output for a message and puts it on one line.
func short(text string) string {
	const most = 600
	text = strings.Join(strings.Fields(text), " ")
	if len(text) > most {
		text = text[:most] + "…"
	}
	return text
}

// hasLacks says which parts must be found and which must not.
type hasLacks struct{ has, lacks []string }

func (p *parser) hasLacks(t *table) hasLacks {
	return hasLacks{has: p.filled(t.get("has"), "has"), lacks: p.filled(t.get("lacks"), "lacks")}
}

func (w hasLacks) empty() bool { return len(w.has)+len(w.lacks) == 0 }

// compare compares by a function that says whether a part is found. seen is what was looked at.
func (w hasLacks) compare(found func(string) bool, seen string) error {
	var wrong []string
	for _, part := range w.has {
		if !found(part) {
			wrong = append(wrong, fmt.Sprintf("want %q", part))
		}
	}
	for _, part := range w.lacks {
		if found(part) {
			wrong = append(wrong, fmt.Sprintf("want no %q", part))
		}
	}
	if wrong == nil {
		return nil
	}
	return failf("%s, saw %s", strings.Join(wrong, ", "), seen)
}

// listed is a list in a message.
func listed(items []string) string {
	if len(items) == 0 {
		return "none"
	}
	return strings.Join(items, ", ")
}

// counted is a tally in a message: what, and how often if more than once.
func counted[K ~string](counts map[K]int) string {
	var items []string
	for _, k := range slices.Sorted(maps.Keys(counts)) {
		item := string(k)
		if counts[k] > 1 {
			item = fmt.Sprintf("%s (%d times)", k, counts[k])
		}
		items = append(items, item)
	}
	return listed(items)
}

// onlyThese checks who answered: each of a list at least once and nobody else.
func onlyThese(only []string, answered map[string]int) error {
	if err := amongThese(only, answered); err != nil {
		return err
	}
	for _, name := range only {
		if answered[name] == 0 {
			return failf("want answers from each of %s, saw %s", listed(only), counted(answered))
		}
	}
	return nil
}

// amongThese checks that nobody else answered.
func amongThese(among []string, answered map[string]int) error {
	for name := range answered {
		if !slices.Contains(among, name) {
			return failf("want answers from %s only, saw %s", listed(among), counted(answered))
		}
	}
	return nil
}

// commandExpect is what a command must end with.
type commandExpect struct {
	exit  int
	parts hasLacks
}

// commandExpect reads the `expect` of a command; nil if there is none.
func (p *parser) commandExpect(n *yaml.Node) *commandExpect {
	if n == nil {
		return nil
	}
	t := p.table(n, "expect")
	e := &commandExpect{exit: p.number(t.get("exit"), "exit", 0, 255), parts: p.hasLacks(t)}
	t.done()
	p.checks++
	return e
}

// compare judges a command that has ended. Without expectations only an exit status of 0 will do, and another is
// no fault of the proxy.
func (e *commandExpect) compare(output string, exit int) error {
	if e == nil {
		if exit != 0 {
			return fmt.Errorf("exit status %d; it printed: %s", exit, short(output))
		}
		return nil
	}
	if exit != e.exit {
		return failf("want exit status %d, saw %d; it printed: %s", e.exit, exit, short(output))
	}
	return e.parts.compare(func(part string) bool { return strings.Contains(output, part) }, fmt.Sprintf("%q", short(output)))
}
