package watch

import (
	"strconv"
	"strings"

	"go.yaml.in/yaml/v3"
)

// findLine returns the line, counted from 1, of a field such as
// spec.ports[0].port in a YAML document. A list without an index matches if
// just one of its elements has the rest of the path. Where the path leads
// nowhere it returns the line of the last part that exists, and false if none
// does.
func findLine(text []byte, path string) (int, bool) {
	var root yaml.Node
	if yaml.Unmarshal(text, &root) != nil || len(root.Content) == 0 {
		return 0, false
	}
	at := root.Content[0]
	line := at.Line
	for _, step := range pathSteps(path) {
		key, value := child(at, step)
		if value == nil {
			break
		}
		at, line = value, key.Line
	}
	return line, true
}

// pathSteps splits a path into names and indexes.
func pathSteps(path string) []string {
	return strings.FieldsFunc(path, func(r rune) bool { return r == '.' || r == '[' || r == ']' })
}

// child returns the key and the value that a step leads to.
func child(at *yaml.Node, step string) (key, value *yaml.Node) {
	switch at.Kind {
	case yaml.MappingNode:
		for i := 0; i+1 < len(at.Content); i += 2 {
			if at.Content[i].Value == step {
				return at.Content[i], at.Content[i+1]
			}
		}
	case yaml.SequenceNode:
		if i, err := strconv.Atoi(step); err == nil && i < len(at.Content) {
			return at.Content[i], at.Content[i]
		}
		for _, element := range at.Content {
			k, v := child(element, step)
			if v == nil {
				continue
			}
			if value != nil {
				return nil, nil
			}
			key, value = k, v
		}
	case yaml.AliasNode:
		return child(at.Alias, step)
	}
	return key, value
}
