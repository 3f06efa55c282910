package scenario

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// File is one scenario file.
type File struct {
	Path       string
	Name       string
	About      string
	Reports    []string          // public reports of the same fault
	Families   []Family          // the file runs once for each
	ExpectFail map[string]string // why it is known to fail, by the name of the proxy

	scripts map[Family]script
}

// script is what a file says in one family.
type script struct {
	proxy map[string]any
	steps []step
}

// Find lists the scenario files that paths stand for: a file itself, and of a directory every .yaml and .yml in it.
func Find(paths ...string) ([]string, error) {
	var files []string
	for _, path := range paths {
		info, err := os.Stat(path)
		if err != nil {
			return nil, fmt.Errorf("find scenarios: %w", err)
		}
		if !info.IsDir() {
			files = append(files, path)
			continue
		}
		entries, err := os.ReadDir(path)
		if err != nil {
			return nil, fmt.Errorf("find scenarios: %w", err)
		}
		before := len(files)
		for _, e := range entries {
			if ext := filepath.Ext(e.Name()); !e.IsDir() && (ext == ".yaml" || ext == ".yml") {
				files = append(files, filepath.Join(path, e.Name()))
			}
		}
		if len(files) == before {
			return nil, fmt.Errorf("find scenarios: no .yaml file in %s", path)
		}
	}
	return files, nil
}

// baseName is what the name of a scenario in a file must be.
func baseName(path string) string {
	return strings.TrimSuffix(filepath.Base(path), filepath.Ext(path))
}

// Read reads and checks a file. Its error joins a *Fault for each thing that is wrong.
func Read(path string) (*File, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("read scenario: %w", err)
	}
	return Parse(path, text)
}

// Parse is Read for a text that would stand at path.
func Parse(path string, text []byte) (*File, error) {
	first, err := parseFamily(path, text, IPv4)
	if first == nil {
		return nil, err
	}
	f, errs := first.file, []error{err}
	for _, family := range f.Families {
		p := first
		if family != IPv4 {
			if p, err = parseFamily(path, text, family); p == nil {
				return nil, err
			}
			errs = appendNew(errs, err)
		}
		f.scripts[family] = p.script
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	return f, nil
}

// appendNew leaves out an error that another family had too.
func appendNew(errs []error, err error) []error {
	if err == nil || slices.ContainsFunc(errs, func(e error) bool { return e != nil && e.Error() == err.Error() }) {
		return errs
	}
	return append(errs, err)
}

// parser reads one file for one family and remembers what steps must know of each other.
type parser struct {
	*reader
	file   *File
	script script

	checks  int
	marks   map[string]*mark
	open    map[string]*opened // held connections, loads and streams by kind and name
	ordered []*opened
}

func parseFamily(path string, text []byte, family Family) (*parser, error) {
	p := &parser{
		reader: &reader{path: path, family: family},
		file:   &File{Path: path, scripts: map[Family]script{}},
		marks:  map[string]*mark{}, open: map[string]*opened{},
	}
	root, err := document(path, text)
	if err != nil {
		return nil, err
	}
	p.replaceNames(root)
	p.top(root.Content[0])
	return p, p.err()
}

// document reads the one YAML document of a file.
func document(path string, text []byte) (*yaml.Node, error) {
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	var root, more yaml.Node
	err := decoder.Decode(&root)
	if errors.Is(err, io.EOF) || (err == nil && len(root.Content) == 0) {
		return nil, &Fault{Path: path, What: "the file is empty; write name, about and steps"}
	}
	if err != nil {
		return nil, &Fault{Path: path, What: "no YAML: " + strings.TrimPrefix(err.Error(), "yaml: ")}
	}
	if err := decoder.Decode(&more); !errors.Is(err, io.EOF) {
		return nil, &Fault{Path: path, Line: more.Line, What: "a second document begins here; a scenario is one document in one file"}
	}
	return &root, nil
}

func (p *parser) top(n *yaml.Node) {
	t := p.table(n, "the file")
	p.readName(t)
	p.file.About = p.text(t.need("about", "what a user would see, in a sentence"), "about")
	p.file.Reports = p.filled(t.get("reports"), "reports")
	p.script.proxy = p.fields(t.get("proxy"), "proxy")
	p.readFamilies(t.get("families"))
	p.readExpectFail(t.get("expect-fail"))
	p.readSteps(t.need("steps", "[…]"), t.node)
	t.done()
}

func (p *parser) readName(t *table) {
	want := baseName(p.path)
	n := t.need("name", want)
	if p.file.Name = p.text(n, "name"); p.file.Name != "" && p.file.Name != want {
		p.fault(n, "name is %q but the file is called %s; write name: %s, or rename the file", p.file.Name, filepath.Base(p.path), want)
	}
}

func (p *parser) readFamilies(n *yaml.Node) {
	p.file.Families = []Family{IPv4}
	words := p.filled(n, "families")
	if words == nil {
		return
	}
	p.file.Families = nil
	for _, word := range words {
		family := Family(word)
		switch {
		case family != IPv4 && family != IPv6:
			p.fault(n, "families names %q; write ipv4, ipv6 or both", word)
		case slices.Contains(p.file.Families, family):
			p.fault(n, "families names %s twice", word)
		default:
			p.file.Families = append(p.file.Families, family)
		}
	}
}

func (p *parser) readExpectFail(n *yaml.Node) {
	if n == nil {
		return
	}
	t := p.table(n, "expect-fail")
	p.file.ExpectFail = map[string]string{}
	for _, proxy := range t.keys {
		p.file.ExpectFail[proxy.Value] = p.text(t.get(proxy.Value), "the reason why "+proxy.Value+" fails")
	}
	if len(t.keys) == 0 && t.node.Kind == yaml.MappingNode {
		p.fault(n, "expect-fail names no proxy; write {kube-proxy: why it fails}")
	}
}

func (p *parser) readSteps(n, file *yaml.Node) {
	if n == nil {
		return
	}
	if n.Kind != yaml.SequenceNode || len(n.Content) == 0 {
		p.fault(n, "steps is %s; write a list, each step beginning with a dash: - wait: 2s", orEmpty(n))
		return
	}
	for _, item := range n.Content {
		if s, ok := p.step(target(item)); ok {
			p.script.steps = append(p.script.steps, s)
		}
	}
	for _, o := range p.ordered {
		if o.kind != "hold" && !o.closed {
			p.faultAt(o.line, "%s %s is never stopped, so what it saw is never checked; add the step %s: {stop: %s, expect: {…}}",
				o.kind, o.name, o.kind, o.name)
		}
	}
	if p.checks == 0 {
		p.fault(file, "the file checks nothing and would always pass; add a step such as connect with expect")
	}
}

// opened is a held connection, a load or a stream, which has a name for later steps.
type opened struct {
	kind, name string
	line       int
	closed     bool
}

// begin notes that a step opens something under a name.
func (p *parser) begin(kind, name string, n *yaml.Node) {
	key := kind + " " + name
	if o := p.open[key]; o != nil && !o.closed {
		p.fault(n, "%s %s is open already, since line %d; choose another name", kind, name, o.line)
		return
	}
	o := &opened{kind: kind, name: name, line: n.Line}
	p.open[key] = o
	p.ordered = append(p.ordered, o)
}

// refer notes that a step needs what an earlier one opened, and perhaps closes it.
func (p *parser) refer(kind, name string, n *yaml.Node, closes bool) {
	o := p.open[kind+" "+name]
	switch {
	case name == "":
	case o == nil:
		p.fault(n, "there is no %s %s before this line; begin it with the step %s: {name: %s, …}", kind, name, kind, name)
	case o.closed:
		p.fault(n, "%s %s was ended by an earlier step", kind, name)
	case closes:
		o.closed = true
	}
}
