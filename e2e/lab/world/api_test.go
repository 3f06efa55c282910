package world

import (
	"context"
	"encoding/json"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
)

// apiServer answers discovery and remembers the other requests.
func apiServer(t *testing.T) (*api, *[]string) {
	var requests []string
	server := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		answer, ok := map[string]string{
			"/api": `{"items":[{"metadata":{},"versions":[{"version":"v1","resources":[
				{"resource":"services","responseKind":{"kind":"Service"},"scope":"Namespaced","singularResource":"service","shortNames":["svc"]},
				{"resource":"nodes","responseKind":{"kind":"Node"},"scope":"Cluster","singularResource":"node"}]}]}]}`,
			"/apis": `{"items":[{"metadata":{"name":"discovery.k8s.io"},"versions":[{"version":"v1","resources":[
				{"resource":"endpointslices","responseKind":{"kind":"EndpointSlice"},"scope":"Namespaced","singularResource":"endpointslice"}]}]}]}`,
		}[r.URL.Path]
		if !ok {
			requests = append(requests, r.Method+" "+r.URL.Path)
			answer = "{}"
		}
		if strings.HasSuffix(r.URL.Path, "/refused") {
			w.WriteHeader(http.StatusUnprocessableEntity)
			answer = `{"message":"spec.ports: Required value"}`
		}
		_, _ = w.Write([]byte(answer))
	}))
	t.Cleanup(server.Close)
	return newAPI(strings.TrimPrefix(server.URL, "https://"), "token"), &requests
}

func TestApplyWithStatus(t *testing.T) {
	for text, want := range map[string][]string{
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web"}}`: {
			"PATCH /api/v1/namespaces/default/services/web",
		},
		`{"apiVersion":"v1","kind":"Service","metadata":{"name":"web","namespace":"shop"},"status":{}}`: {
			"PATCH /api/v1/namespaces/shop/services/web", "PATCH /api/v1/namespaces/shop/services/web/status",
		},
		`{"apiVersion":"v1","kind":"Node","metadata":{"name":"node1"},"status":{}}`: {
			"PATCH /api/v1/nodes/node1", "PATCH /api/v1/nodes/node1/status",
		},
		`{"apiVersion":"discovery.k8s.io/v1","kind":"EndpointSlice","metadata":{"name":"web-0"}}`: {
			"PATCH /apis/discovery.k8s.io/v1/namespaces/default/endpointslices/web-0",
		},
	} {
		a, requests := apiServer(t)
		var o object
		if err := json.Unmarshal([]byte(text), &o); err != nil {
			t.Fatal(err)
		}
		if _, err := a.apply(context.Background(), o); err != nil {
			t.Errorf("%s: %v", text, err)
		}
		if !slices.Equal(*requests, want) {
			t.Errorf("%s: got %v, want %v", text, *requests, want)
		}
	}
}

func TestApplyErrors(t *testing.T) {
	for _, c := range []struct {
		o    object
		want string
	}{
		{object{"apiVersion": "v1", "kind": "Servise", "metadata": map[string]any{"name": "x"}}, "knows no v1 Servise"},
		{object{"apiVersion": "v1", "kind": "Service"}, "without metadata.name"},
		{object{"apiVersion": "v1", "kind": "Service", "metadata": map[string]any{"name": "refused"}}, "422: spec.ports: Required value"},
	} {
		a, _ := apiServer(t)
		_, err := a.apply(context.Background(), c.o)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("got %v, want %q", err, c.want)
		}
	}
}

func TestByName(t *testing.T) {
	a, _ := apiServer(t)
	for _, name := range []string{"service", "services", "svc", "Service"} {
		r, err := a.byName(context.Background(), name)
		if err != nil || r.Kind != "Service" {
			t.Errorf("%s: got %v, %v", name, r.Kind, err)
		}
	}
	if _, err := a.byName(context.Background(), "pod"); err == nil {
		t.Error("an unknown name was found")
	}
}
