package watch

import (
	"bytes"
	stdjson "encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// manifest is the content of one file.
type manifest struct {
	objects []placed
	// ignored names objects that do not matter to a proxy.
	ignored []string
}

// placed is an object and where in a file it stands.
type placed struct {
	metav1.Object
	document int
}

// document is one YAML or JSON document of a file, and the line it begins on.
type document struct {
	number, line int
	text         []byte
}

// parseManifest reads a file's documents. Its error names the document, the
// line and the field of the first thing that is wrong.
func parseManifest(data []byte) (manifest, error) {
	var m manifest
	if len(bytes.TrimSpace(data)) == 0 {
		return m, fmt.Errorf("the file is empty; remove it to delete its objects")
	}
	for _, d := range splitDocuments(data) {
		if err := m.addDocument(d); err != nil {
			return manifest{}, fmt.Errorf("document %d: %w", d.number, err)
		}
	}
	return m, nil
}

// splitDocuments splits at lines that begin with three dashes. Documents
// without content are left out, but count.
func splitDocuments(data []byte) []document {
	var out []document
	d := document{number: 1, line: 1}
	end := func() {
		if hasContent(d.text) {
			out = append(out, d)
		}
	}
	for i, line := range bytes.SplitAfter(data, []byte("\n")) {
		rest, separates := cutSeparator(line)
		if !separates {
			d.text = append(d.text, line...)
			continue
		}
		number := d.number
		if hasContent(d.text) || number > 1 {
			number++
		}
		end()
		d = document{number: number, line: i + 1, text: rest}
	}
	end()
	return out
}

// cutSeparator returns what follows a line's three dashes, which may be the
// beginning of the document.
func cutSeparator(line []byte) (rest []byte, separates bool) {
	rest, ok := bytes.CutPrefix(line, []byte("---"))
	if !ok || len(rest) > 0 && !bytes.ContainsAny(rest[:1], " \t\r\n") {
		return nil, false
	}
	return bytes.Clone(rest), true
}

func hasContent(text []byte) bool {
	for line := range bytes.Lines(text) {
		if line = bytes.TrimSpace(line); len(line) > 0 && line[0] != '#' && !bytes.Equal(line, []byte("...")) {
			return true
		}
	}
	return false
}

func (m *manifest) addDocument(d document) error {
	data, err := yaml.YAMLToJSONStrict(d.text)
	if err != nil {
		return d.withLines(err)
	}
	return m.add(d, "", data)
}

// add reads an object, or a List, in JSON. at is where in the document it
// stands, such as items[2].
func (m *manifest) add(d document, at string, data []byte) error {
	var meta struct {
		metav1.TypeMeta `json:",inline"`
		Metadata        struct{ Name, Namespace string }
		Items           []stdjson.RawMessage
	}
	if err := stdjson.Unmarshal(data, &meta); err != nil {
		return d.wrong(at, fmt.Errorf("not a Kubernetes object: %w", err))
	}
	gvk := meta.GroupVersionKind()
	if gvk == corev1.SchemeGroupVersion.WithKind("List") {
		for i, item := range meta.Items {
			if err := m.add(d, fmt.Sprintf("%sitems[%d].", at, i), item); err != nil {
				return err
			}
		}
		return nil
	}
	obj, err := newObject(gvk)
	if err != nil {
		return d.wrong(at, err)
	}
	if obj == nil {
		m.ignored = append(m.ignored, gvk.Kind+" "+meta.Metadata.Name)
		return nil
	}
	if err := decodeStrict(data, obj); err != nil {
		return d.wrong(at, err)
	}
	setManifestDefaults(obj)
	o := obj.(metav1.Object)
	if o.GetName() == "" {
		return d.wrong(at+"metadata", fmt.Errorf("%s without metadata.name", gvk.Kind))
	}
	if err := complete(o); err != nil {
		return d.wrong(at+"spec", err)
	}
	m.objects = append(m.objects, placed{o, d.number})
	return nil
}

// complete refuses a Service without what the API server would insist on or
// assign: a file that is cut off while it is written must not take a Service
// away.
func complete(o metav1.Object) error {
	svc, ok := o.(*corev1.Service)
	if !ok || svc.Spec.Type == corev1.ServiceTypeExternalName || svc.Spec.ClusterIP == corev1.ClusterIPNone {
		return nil
	}
	if len(svc.Spec.Ports) == 0 {
		return fmt.Errorf("no spec.ports in Service %s", svc.Name)
	}
	if svc.Spec.ClusterIP == "" {
		return fmt.Errorf("no spec.clusterIP in Service %s, and nothing assigns one here", svc.Name)
	}
	return nil
}

// newObject returns an object to decode into, or nil for a kind that does not
// matter to a proxy.
func newObject(gvk schema.GroupVersionKind) (runtime.Object, error) {
	switch gvk {
	case corev1.SchemeGroupVersion.WithKind("Service"):
		return &corev1.Service{}, nil
	case corev1.SchemeGroupVersion.WithKind("Node"):
		return &corev1.Node{}, nil
	case discoveryv1.SchemeGroupVersion.WithKind("EndpointSlice"):
		return &discoveryv1.EndpointSlice{}, nil
	}
	switch gvk.Kind {
	case "":
		return nil, fmt.Errorf("kind is missing")
	case "Endpoints":
		return nil, fmt.Errorf("kind Endpoints is not read: write an EndpointSlice of %s", discoveryv1.SchemeGroupVersion)
	case "Service", "Node", "EndpointSlice":
		return nil, fmt.Errorf("apiVersion %q of kind %s is not known", gvk.GroupVersion(), gvk.Kind)
	}
	if !scheme.Scheme.Recognizes(gvk) {
		return nil, fmt.Errorf("kind %s of apiVersion %q is not known", gvk.Kind, gvk.GroupVersion())
	}
	return nil, nil
}

func decodeStrict(data []byte, into runtime.Object) error {
	decoder := json.NewSerializerWithOptions(json.DefaultMetaFactory, scheme.Scheme, scheme.Scheme, json.SerializerOptions{Strict: true})
	_, _, err := decoder.Decode(data, nil, into)
	if strict, ok := runtime.AsStrictDecodingError(err); ok {
		return strict.Errors()[0]
	}
	return err
}

// setManifestDefaults fills in what the API server would and a proxy reads.
func setManifestDefaults(obj runtime.Object) {
	switch o := obj.(type) {
	case *corev1.Service:
		setIfZero(&o.Namespace, metav1.NamespaceDefault)
		setIfZero(&o.Spec.Type, corev1.ServiceTypeClusterIP)
		for i := range o.Spec.Ports {
			setIfZero(&o.Spec.Ports[i].Protocol, corev1.ProtocolTCP)
		}
		o.Spec.ClusterIPs = clusterIPs(&o.Spec)
		if len(o.Spec.ClusterIPs) > 0 {
			setIfZero(&o.Spec.ClusterIP, o.Spec.ClusterIPs[0])
		}
	case *discoveryv1.EndpointSlice:
		setIfZero(&o.Namespace, metav1.NamespaceDefault)
		for i := range o.Ports {
			setIfZero(&o.Ports[i].Name, new(string))
			setIfZero(&o.Ports[i].Protocol, new(corev1.ProtocolTCP))
		}
	}
}

func setIfZero[T comparable](p *T, value T) {
	if zero := *new(T); *p == zero {
		*p = value
	}
}

// wrong adds the line to an error about what stands at a path of the document.
func (d document) wrong(at string, err error) error {
	path := at + fieldOf(err.Error())
	line, ok := findLine(d.text, strings.TrimSuffix(path, "."))
	if !ok {
		line = 1
	}
	return fmt.Errorf("line %d: %s%w", d.line+line-1, prefixed(at), err)
}

func prefixed(at string) string {
	if at == "" {
		return ""
	}
	return "in " + strings.TrimSuffix(at, ".") + ": "
}

// fieldOf returns the field that a decoder's message names, if it does.
func fieldOf(message string) string {
	quoted := regexp.MustCompile(`field "([^"]+)"|struct field \w+\.(\S+)`).FindStringSubmatch(message)
	if quoted == nil {
		return ""
	}
	return quoted[1] + quoted[2]
}

// withLines changes the line numbers of a YAML error, which count from the
// document's beginning.
func (d document) withLines(err error) error {
	text := regexp.MustCompile(`line \d+`).ReplaceAllStringFunc(err.Error(), func(s string) string {
		n, _ := strconv.Atoi(strings.TrimPrefix(s, "line "))
		return fmt.Sprintf("line %d", d.line+n-1)
	})
	return fmt.Errorf("%s", text)
}
