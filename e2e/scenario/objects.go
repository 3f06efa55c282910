package scenario

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"
)

// apply creates or changes objects.
type apply struct{ objects []map[string]any }

func (p *parser) apply(n *yaml.Node) action {
	text := p.text(n, "apply")
	if text == "" {
		return nil
	}
	var a apply
	decoder := yaml.NewDecoder(bytes.NewReader([]byte(text)))
	for {
		var doc yaml.Node
		err := decoder.Decode(&doc)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			p.fault(n, "apply holds no YAML: %s (lines counted from the first of its text)", strings.TrimPrefix(err.Error(), "yaml: "))
			return nil
		}
		if object := p.object(n, &doc); object != nil {
			a.objects = append(a.objects, object)
		}
	}
	if a.objects == nil {
		p.fault(n, "apply holds no object; write apiVersion, kind, metadata and so on below apply: |")
	}
	return a
}

// object reads one document of an apply, nil if it is empty.
func (p *parser) object(n, doc *yaml.Node) map[string]any {
	if len(doc.Content) == 0 {
		return nil
	}
	value, err := plain(doc.Content[0])
	if err != nil {
		p.fault(n, "apply: %v (lines counted from the first of its text)", err)
		return nil
	}
	if value == nil {
		return nil
	}
	object, _ := value.(map[string]any)
	metadata, _ := object["metadata"].(map[string]any)
	for key, value := range map[string]any{
		"apiVersion": object["apiVersion"], "kind": object["kind"], "metadata.name": metadata["name"],
	} {
		if word, ok := value.(string); !ok || word == "" {
			p.faultAt(n.Line+doc.Content[0].Line, "the object that begins here lacks %s; write it as for kubectl apply", key)
		}
	}
	return object
}

func (a apply) do(ctx context.Context, s *session) error {
	for _, object := range a.objects {
		if err := s.world.Apply(ctx, object); err != nil {
			return fmt.Errorf("apply %v: %w", object["kind"], err)
		}
	}
	return nil
}

// parseRef reads kind/name or kind/namespace/name.
func (r *reader) parseRef(n *yaml.Node, what string) Ref {
	text := r.text(n, what)
	parts := strings.Split(text, "/")
	if text == "" {
		return Ref{}
	}
	if len(parts) < 2 || len(parts) > 3 || slices.Contains(parts, "") {
		r.fault(n, "%s is %q; write kind/name or kind/namespace/name, such as service/web", what, text)
		return Ref{}
	}
	ref := Ref{Kind: strings.ToLower(parts[0]), Name: parts[len(parts)-1]}
	if len(parts) == 3 {
		ref.Namespace = parts[1]
	}
	return ref
}

// deletion deletes objects.
type deletion []Ref

func (p *parser) delete(n *yaml.Node) action {
	if n.Kind != yaml.SequenceNode {
		return deletion{p.parseRef(n, "delete")}
	}
	var d deletion
	for _, item := range n.Content {
		d = append(d, p.parseRef(target(item), "delete"))
	}
	if d == nil {
		p.fault(n, "delete names nothing; write for example delete: service/web")
	}
	return d
}

func (d deletion) do(ctx context.Context, s *session) error {
	for _, ref := range d {
		if err := s.world.Delete(ctx, ref); err != nil {
			return fmt.Errorf("delete %s: %w", ref, err)
		}
		if err := s.collectGarbage(ctx, ref); err != nil {
			return err
		}
	}
	return nil
}

// collectGarbage deletes the slices that steps made for a Service that is gone.
func (s *session) collectGarbage(ctx context.Context, gone Ref) error {
	if gone.Namespace != "" && gone.Namespace != "default" {
		return nil
	}
	switch gone.Kind {
	case "endpointslice", "endpointslices":
		for service, names := range s.slices {
			s.slices[service] = slices.DeleteFunc(names, func(name string) bool { return name == gone.Name })
		}
	case "service", "services", "svc":
		for _, name := range s.slices[gone.Name] {
			if err := s.world.Delete(ctx, Ref{Kind: "endpointslice", Name: name}); err != nil {
				return fmt.Errorf("delete endpointslice/%s after its Service: %w", name, err)
			}
		}
		delete(s.slices, gone.Name)
	}
	return nil
}
