package scenario

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"reflect"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"go.yaml.in/yaml/v3"
)

// httpCheck asks a URL from a host and checks the answer.
type httpCheck struct {
	on, url string
	at      netip.AddrPort // where the URL leads
	status  int
	has     []string
	header  map[string]string
	json    map[string]any
}

func (p *parser) http(t *table) check {
	h := httpCheck{on: p.host(t.need("on", "node1"), "on", "host", anyHost)}
	n := t.need("url", `"http://127.0.0.1:10256/healthz"`)
	if h.url = p.text(n, "url"); h.url != "" {
		var err error
		if h.at, err = p.dialTarget(h.url); err != nil {
			p.fault(n, "url is %q: %v", h.url, err)
		}
	}
	if n := t.need("expect", "{status: 200}"); n != nil {
		p.httpExpect(n, &h)
	}
	return h
}

func (p *parser) httpExpect(n *yaml.Node, h *httpCheck) {
	t := p.table(n, "expect")
	h.status = p.number(t.get("status"), "status", 100, 599)
	h.has = p.filled(t.get("has"), "has")
	if n := t.get("header"); n != nil {
		h.header = map[string]string{}
		header := p.table(n, "header")
		for _, key := range header.keys {
			h.header[key.Value] = p.text(header.get(key.Value), "the header "+key.Value)
		}
	}
	h.json = p.fields(t.get("json"), "json")
	if t.node.Kind == yaml.MappingNode && len(t.keys) == 0 {
		p.fault(t.node, "expect is empty; write for example {status: 200}")
	}
	t.done()
}

// dialTarget finds the address that a URL names.
func (r *reader) dialTarget(text string) (netip.AddrPort, error) {
	u, err := url.Parse(text)
	if err != nil {
		return netip.AddrPort{}, err
	}
	if u.Scheme != "http" {
		return netip.AddrPort{}, errors.New("write it with http://")
	}
	port := u.Port()
	if port == "" {
		port = "80"
	}
	host := u.Hostname()
	if addr, ok := Address(host, r.family); ok {
		host = addr.String()
	}
	at, err := netip.ParseAddrPort(net.JoinHostPort(host, port))
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("write an address, such as http://192.0.2.11:%s/ or http://${node1:%s}/", port, port)
	}
	return at, nil
}

func (h httpCheck) try(ctx context.Context, s *session) error {
	client, err := s.client(h.on)
	if err != nil {
		return err
	}
	response, body, err := get(ctx, h.url, func() (net.Conn, error) {
		return client.Dial(traffic.Target{Proto: traffic.TCP, Addr: h.at})
	})
	if err == nil {
		err = h.compare(response, body)
	} else {
		err = failf("want an answer, saw %v", err)
	}
	if err != nil {
		return fmt.Errorf("http on %s to %s: %w", h.on, h.url, err)
	}
	return nil
}

// get asks once, on a connection of its own, and follows no redirect.
func get(ctx context.Context, url string, dial func() (net.Conn, error)) (*http.Response, string, error) {
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return nil, "", err
	}
	transport := &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(context.Context, string, string) (net.Conn, error) { return dial() },
	}
	defer transport.CloseIdleConnections()
	response, err := transport.RoundTrip(request)
	if err != nil {
		return nil, "", err
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	return response, string(body), err
}

func (h httpCheck) compare(response *http.Response, body string) error {
	if h.status != 0 && response.StatusCode != h.status {
		return failf("want status %d, saw %d with %q", h.status, response.StatusCode, short(body))
	}
	for key, want := range h.header {
		if have := response.Header.Get(key); have != want {
			return failf("want header %s: %s, saw %q", key, want, have)
		}
	}
	if err := h.compareJSON(body); err != nil {
		return err
	}
	return hasLacks{has: h.has}.compare(func(part string) bool { return strings.Contains(body, part) }, fmt.Sprintf("%q", short(body)))
}

func (h httpCheck) compareJSON(body string) error {
	if len(h.json) == 0 {
		return nil
	}
	var document any
	if err := json.Unmarshal([]byte(body), &document); err != nil {
		return failf("want JSON, saw %q", short(body))
	}
	for path, want := range h.json {
		have, ok := lookup(document, path)
		if !ok || !sameJSON(want, have) {
			return failf("want %s in the JSON to be %v, saw %s", path, want, short(body))
		}
	}
	return nil
}

// lookup follows a path of keys with dots between them.
func lookup(document any, path string) (any, bool) {
	object, ok := document.(map[string]any)
	if !ok {
		return nil, false
	}
	if value, ok := object[path]; ok {
		return value, true
	}
	key, rest, ok := strings.Cut(path, ".")
	if !ok {
		return nil, false
	}
	return lookup(object[key], rest)
}

// sameJSON compares a value of the file with one that was decoded, whose numbers are all of one type.
func sameJSON(want, have any) bool {
	text, err := json.Marshal(want)
	if err != nil {
		return false
	}
	var decoded any
	return json.Unmarshal(text, &decoded) == nil && reflect.DeepEqual(decoded, have)
}
