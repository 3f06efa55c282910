package watch

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
)

const webManifest = `# a comment first
---
apiVersion: v1
kind: Service
metadata:
  name: web
spec:
  clusterIP: 10.96.0.10
  ports:
  - port: 80
---
--- # nothing in between
apiVersion: v1
kind: List
items:
- apiVersion: discovery.k8s.io/v1
  kind: EndpointSlice
  metadata:
    name: web-1
    namespace: shop
    labels: {kubernetes.io/service-name: web}
  addressType: IPv4
  ports:
  - port: 8080
  endpoints:
  - addresses: [10.244.1.11]
- {apiVersion: v1, kind: Node, metadata: {name: a}}
--- {apiVersion: v1, kind: Namespace, metadata: {name: shop}}
---
apiVersion: apps/v1
kind: Deployment
metadata: {name: web}
`

func TestParseManifest(t *testing.T) {
	m, err := parseManifest([]byte(webManifest))
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, o := range m.objects {
		got = append(got, keyOf(o.Object).String())
	}
	expect(t, got, "Service default/web", "EndpointSlice shop/web-1", "Node a")
	expect(t, m.ignored, "Namespace shop", "Deployment web")

	spec := m.objects[0].Object.(*corev1.Service).Spec
	if spec.Type != "ClusterIP" || !slices.Equal(spec.ClusterIPs, []string{"10.96.0.10"}) || spec.Ports[0].Protocol != "TCP" {
		t.Errorf("defaults are missing: %+v", spec)
	}
	port := m.objects[1].Object.(*discoveryv1.EndpointSlice).Ports[0]
	if port.Name == nil || *port.Name != "" || port.Protocol == nil || *port.Protocol != "TCP" {
		t.Errorf("defaults are missing: %+v", port)
	}
}

func TestParseManifestJSON(t *testing.T) {
	m, err := parseManifest([]byte("{\n\t\"apiVersion\": \"v1\",\n\t\"kind\": \"Service\",\n\t\"metadata\": {\"name\": \"web\"},\n\t\"spec\": {\"clusterIP\": \"10.96.0.1\", \"ports\": [{\"port\": 80}]}\n}\n"))
	if err != nil || len(m.objects) != 1 {
		t.Errorf("got %+v, %v", m, err)
	}
}

func TestParseManifestErrors(t *testing.T) {
	tests := map[string]struct {
		text string
		want []string
	}{
		"empty":   {" \n", []string{"empty"}},
		"no kind": {"a: b", []string{"document 1", "line 1", "kind is missing"}},
		"unknown field": {"kind: Service\napiVersion: v1\nmetadata: {name: a}\nspec:\n  ports:\n  - port: 1\n  - port: 2\n    nodeprt: 3\n",
			[]string{"document 1", "line 8", `unknown field "spec.ports[1].nodeprt"`}},
		"other case": {"kind: Service\napiVersion: v1\nmetadata: {name: a}\nspec:\n  clusterip: 10.0.0.1\n",
			[]string{"line 5", `unknown field "spec.clusterip"`}},
		"in a later document": {webManifest + "---\n\nkind: Service\napiVersion: v1\nmetadata: {name: a}\nspecs: {}\n",
			[]string{"document 6", fmt.Sprintf("line %d", strings.Count(webManifest, "\n")+6), `unknown field "specs"`}},
		"in a list": {"kind: List\napiVersion: v1\nitems:\n- kind: Node\n  apiVersion: v1\n  metadata: {name: a}\n- kind: Service\n  apiVersion: v1\n  metadata: {name: a}\n  sepc: {}\n",
			[]string{"line 10", "items[1]", `unknown field "sepc"`}},
		"type": {"kind: Service\napiVersion: v1\nmetadata: {name: a}\nspec:\n  ports:\n  - port: http\n",
			[]string{"line 6", "cannot unmarshal string", "port"}},
		"twice":        {"kind: Service\napiVersion: v1\nmetadata:\n  name: a\n  name: b\n", []string{"line 5", `"name" already set`}},
		"syntax":       {"---\n{kind: Node, apiVersion: v1, metadata: {name: a}}\n---\na: b\nc: [\n", []string{"document 2", "line 5"}},
		"no name":      {"kind: Service\napiVersion: v1\nmetadata:\n  namespace: a\n", []string{"line 3", "without metadata.name"}},
		"old API":      {"kind: EndpointSlice\napiVersion: discovery.k8s.io/v1beta1\n", []string{"discovery.k8s.io/v1beta1", "EndpointSlice"}},
		"Endpoints":    {"kind: Endpoints\napiVersion: v1\n", []string{"write an EndpointSlice"}},
		"unknown kind": {"kind: Servce\napiVersion: v1\n", []string{"Servce"}},
		"not a map":    {"- a\n", []string{"line 1", "not a Kubernetes object"}},
	}
	for label, test := range tests {
		t.Run(label, func(t *testing.T) {
			_, err := parseManifest([]byte(test.text))
			if err == nil {
				t.Fatal("no error")
			}
			for _, want := range test.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q is missing in: %v", want, err)
				}
			}
		})
	}
}

func FuzzParseManifest(f *testing.F) {
	f.Add([]byte(webManifest))
	f.Add([]byte("--- {a: b}\n---\r\n...\n- &a [*a]"))
	f.Fuzz(func(t *testing.T, data []byte) {
		m, err := parseManifest(data)
		if err != nil && len(m.objects) > 0 {
			t.Error("a bad file has objects")
		}
		for _, o := range m.objects {
			selected(o.Object)
			convert(o.Object)
		}
	})
}

// TestParseManifestCutOff: a file that is still being written must not take a
// Service away.
func TestParseManifestCutOff(t *testing.T) {
	const whole = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec:\n  clusterIP: 10.96.0.1\n  ports: [{port: 80}]\n"
	for _, end := range []string{"spec:\n", "10.96.0.1\n"} {
		cut := whole[:strings.Index(whole, end)+len(end)]
		if m, err := parseManifest([]byte(cut)); err == nil {
			t.Errorf("%q gave %v", cut, m.objects)
		}
	}
	if _, err := parseManifest([]byte(whole)); err != nil {
		t.Error(err)
	}
}
