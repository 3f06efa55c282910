package scenario

import (
	"fmt"
	"net/netip"
	"regexp"
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// names are all names that stand for an address.
func names() []string {
	var all []string
	for _, h := range Hosts() {
		all = append(all, h.Name)
	}
	for _, kind := range []string{"vip", "cluster"} {
		for n := 1; n <= 9; n++ {
			all = append(all, fmt.Sprintf("%s%d", kind, n))
		}
	}
	return all
}

// placeholder is `${name}` or `${name:port}`. Other uses of `${` are left to the shell of a command.
func placeholder() *regexp.Regexp { return regexp.MustCompile(`\$\{([A-Za-z0-9_-]*)(?::([0-9]+))?\}`) }

// replaceNames puts addresses for the names in every string of the file.
func (r *reader) replaceNames(n *yaml.Node) {
	if n.Kind == yaml.ScalarNode && strings.Contains(n.Value, "${") {
		n.Value = r.replaceIn(n)
	}
	for _, child := range n.Content {
		r.replaceNames(child)
	}
}

func (r *reader) replaceIn(n *yaml.Node) string {
	lines := strings.Split(n.Value, "\n")
	first := n.Line
	if n.Style&(yaml.LiteralStyle|yaml.FoldedStyle) != 0 {
		first++ // The text begins below its sign.
	}
	form := placeholder()
	for i, line := range lines {
		lines[i] = form.ReplaceAllStringFunc(line, func(found string) string {
			parts := form.FindStringSubmatch(found)
			text, err := r.written(parts[1], parts[2])
			if err != nil {
				r.faultAt(first+i, "%s: %v", found, err)
			}
			return text
		})
	}
	return strings.Join(lines, "\n")
}

// written is what a name, and perhaps a port, is replaced by.
func (r *reader) written(name, port string) (string, error) {
	addr, ok := Address(name, r.family)
	if !ok {
		return "", fmt.Errorf("no such name (a variable of the shell is written without braces); %s", suggest(name, names()))
	}
	if port == "" {
		return addr.String(), nil
	}
	number, err := strconv.ParseUint(port, 10, 16)
	if err != nil || number == 0 {
		return "", fmt.Errorf("a port is a number from 1 to 65535")
	}
	return netip.AddrPortFrom(addr, uint16(number)).String(), nil
}
