package world

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// api speaks to kube-apiserver with plain HTTP, as administrator.
type api struct {
	base  string
	token string
	http  *http.Client

	mu        sync.Mutex
	resources []resource
}

// resource is one kind of object that the API server has.
type resource struct {
	Kind       string
	Group      string
	Version    string
	Plural     string
	Singular   string
	ShortNames string // separated by blanks
	Namespaced bool
}

func (r resource) apiVersion() string {
	if r.Group == "" {
		return r.Version
	}
	return r.Group + "/" + r.Version
}

// path is that of the objects of a namespace, or of one object.
func (r resource) path(namespace, name string) string {
	path := "/apis/" + r.apiVersion()
	if r.Group == "" {
		path = "/api/" + r.Version
	}
	if r.Namespaced && namespace != "" {
		path += "/namespaces/" + url.PathEscape(namespace)
	}
	path += "/" + r.Plural
	if name != "" {
		path += "/" + url.PathEscape(name)
	}
	return path
}

func newAPI(address, token string) *api {
	// The server's certificate is one that it made for itself, and the wire is a cable inside the lab.
	transport := &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}, ForceAttemptHTTP2: true}
	return &api{
		base: "https://" + address, token: token,
		http: &http.Client{Transport: transport, Timeout: time.Minute},
	}
}

// statusError is an answer of the API server other than success.
type statusError struct {
	Code    int
	Message string
}

func (e *statusError) Error() string { return fmt.Sprintf("API server: %d: %s", e.Code, e.Message) }

func isNotFound(err error) bool {
	var status *statusError
	return errors.As(err, &status) && status.Code == http.StatusNotFound
}

// do sends a request and decodes the answer into out, which may be nil.
func (a *api) do(ctx context.Context, method, path, contentType string, body, out any) error {
	var reader io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return err
		}
		reader = bytes.NewReader(data)
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, reader)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", contentType)
	if strings.HasPrefix(contentType, discoveryType) {
		request.Header.Set("Accept", contentType)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return err
	}
	if response.StatusCode >= 300 {
		return &statusError{response.StatusCode, message(data)}
	}
	if out == nil {
		return nil
	}
	return json.Unmarshal(data, out)
}

// message is the text of a Status object, or the whole answer if it is none.
func message(data []byte) string {
	var status struct{ Message string }
	if json.Unmarshal(data, &status) == nil && status.Message != "" {
		return status.Message
	}
	return strings.TrimSpace(string(data))
}

const (
	applyType     = "application/apply-patch+yaml"
	jsonType      = "application/json"
	discoveryType = "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList"
	fieldManager  = "scenario"
)

// awaitReady waits until the API server says that it is ready.
func (a *api) awaitReady(ctx context.Context) error {
	return await(ctx, 3*time.Minute, func() error {
		return a.do(ctx, http.MethodGet, "/readyz", jsonType, nil, nil)
	})
}

// lookup finds a resource by what is set of: apiVersion, kind, and a name as kubectl takes it.
func (a *api) lookup(ctx context.Context, what string, match func(resource) bool) (resource, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.resources == nil {
		if err := a.discover(ctx); err != nil {
			return resource{}, fmt.Errorf("asking the API server for its resources: %w", err)
		}
	}
	for _, r := range a.resources {
		if match(r) {
			return r, nil
		}
	}
	return resource{}, fmt.Errorf("the API server knows no %s", what)
}

func (a *api) byKind(ctx context.Context, apiVersion, kind string) (resource, error) {
	return a.lookup(ctx, apiVersion+" "+kind, func(r resource) bool { return r.apiVersion() == apiVersion && r.Kind == kind })
}

func (a *api) byName(ctx context.Context, name string) (resource, error) {
	name = strings.ToLower(name)
	return a.lookup(ctx, name, func(r resource) bool {
		for _, s := range append([]string{r.Singular, r.Plural, strings.ToLower(r.Kind)}, strings.Fields(r.ShortNames)...) {
			if s == name {
				return true
			}
		}
		return false
	})
}

// discover reads the list of resources; the core group comes first, as kubectl has it.
func (a *api) discover(ctx context.Context) error {
	for _, path := range []string{"/api", "/apis"} {
		var answer struct{ Items []groupDiscovery }
		if err := a.do(ctx, http.MethodGet, path, discoveryType, nil, &answer); err != nil {
			return err
		}
		for _, group := range answer.Items {
			a.resources = append(a.resources, group.resources()...)
		}
	}
	return nil
}

// groupDiscovery is one group of APIGroupDiscoveryList.
type groupDiscovery struct {
	Metadata struct{ Name string }
	Versions []struct {
		Version   string
		Resources []struct {
			Resource         string
			ResponseKind     struct{ Kind string }
			Scope            string
			SingularResource string
			ShortNames       []string
		}
	}
}

func (g groupDiscovery) resources() []resource {
	var all []resource
	for _, v := range g.Versions {
		for _, r := range v.Resources {
			all = append(all, resource{
				Kind: r.ResponseKind.Kind, Group: g.Metadata.Name, Version: v.Version, Plural: r.Resource,
				Singular: r.SingularResource, ShortNames: strings.Join(r.ShortNames, " "), Namespaced: r.Scope == "Namespaced",
			})
		}
	}
	return all
}

// object is an object of the API as JSON has it.
type object map[string]any

func (o object) text(path ...string) string {
	var value any = map[string]any(o)
	for _, key := range path {
		m, ok := value.(map[string]any)
		if !ok {
			return ""
		}
		value = m[key]
	}
	s, _ := value.(string)
	return s
}

// apply is `kubectl apply --server-side --force-conflicts --validate=strict`, with the status if there is one.
// It says which object that was.
func (a *api) apply(ctx context.Context, o object) (key, error) {
	r, err := a.byKind(ctx, o.text("apiVersion"), o.text("kind"))
	if err != nil {
		return key{}, err
	}
	name := o.text("metadata", "name")
	if name == "" {
		return key{}, fmt.Errorf("%s without metadata.name", r.Kind)
	}
	k := key{resource: r, namespace: namespaceOf(r, o.text("metadata", "namespace")), name: name}
	query := "?fieldManager=" + fieldManager + "&force=true&fieldValidation=Strict"
	if err := a.do(ctx, http.MethodPatch, k.path()+query, applyType, o, nil); err != nil {
		return k, fmt.Errorf("applying %s: %w", k, err)
	}
	if _, ok := o["status"]; !ok || (r.Kind != "Service" && r.Kind != "Node") {
		return k, nil
	}
	status := object{"apiVersion": o["apiVersion"], "kind": o["kind"], "status": o["status"],
		"metadata": map[string]any{"name": name}}
	if err := a.do(ctx, http.MethodPatch, k.path()+"/status"+query, applyType, status, nil); err != nil {
		return k, fmt.Errorf("applying the status of %s: %w", k, err)
	}
	return k, nil
}

func namespaceOf(r resource, namespace string) string {
	if !r.Namespaced {
		return ""
	}
	if namespace == "" {
		return "default"
	}
	return namespace
}

// key names an object in the API.
type key struct {
	resource  resource
	namespace string
	name      string
}

func (k key) path() string { return k.resource.path(k.namespace, k.name) }

func (k key) String() string {
	return scenario.Ref{Kind: strings.ToLower(k.resource.Kind), Namespace: k.namespace, Name: k.name}.String()
}

// delete deletes an object and waits until it is gone. Nobody but us would finish a Namespace.
func (a *api) delete(ctx context.Context, k key) error {
	if err := a.do(ctx, http.MethodDelete, k.path(), jsonType, nil, nil); err != nil {
		return fmt.Errorf("deleting %s: %w", k, err)
	}
	if k.resource.Kind == "Namespace" {
		if err := a.finalize(ctx, k.name); err != nil && !isNotFound(err) {
			return fmt.Errorf("finalizing %s: %w", k, err)
		}
	}
	return await(ctx, 30*time.Second, func() error {
		err := a.do(ctx, http.MethodGet, k.path(), jsonType, nil, nil)
		if isNotFound(err) {
			return nil
		}
		if err == nil {
			return fmt.Errorf("%s is still there", k)
		}
		return err
	})
}

func (a *api) finalize(ctx context.Context, namespace string) error {
	empty := object{
		"apiVersion": "v1", "kind": "Namespace",
		"metadata": map[string]any{"name": namespace}, "spec": map[string]any{"finalizers": []string{}},
	}
	return a.do(ctx, http.MethodPut, "/api/v1/namespaces/"+url.PathEscape(namespace)+"/finalize", jsonType, empty, nil)
}

// list returns all objects of a resource in all namespaces.
func (a *api) list(ctx context.Context, r resource, query url.Values) ([]object, error) {
	var answer struct{ Items []object }
	path := r.path("", "")
	if len(query) > 0 {
		path += "?" + query.Encode()
	}
	if err := a.do(ctx, http.MethodGet, path, jsonType, nil, &answer); err != nil {
		return nil, fmt.Errorf("listing %s: %w", r.Plural, err)
	}
	return answer.Items, nil
}

// events returns the reasons of the Events about an object.
func (a *api) events(ctx context.Context, k key) ([]string, error) {
	events, err := a.byName(ctx, "events")
	if err != nil {
		return nil, err
	}
	fields := "involvedObject.kind=" + k.resource.Kind + ",involvedObject.name=" + k.name
	if k.namespace != "" {
		fields += ",involvedObject.namespace=" + k.namespace
	}
	items, err := a.list(ctx, events, url.Values{"fieldSelector": {fields}})
	if err != nil {
		return nil, err
	}
	var reasons []string
	for _, e := range items {
		reasons = append(reasons, e.text("reason"))
	}
	return reasons, nil
}
