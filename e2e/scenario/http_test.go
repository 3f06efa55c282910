package scenario

import (
	"net/http"
	"testing"
)

func TestHTTPCompare(t *testing.T) {
	response := &http.Response{StatusCode: 503, Header: http.Header{"X-Weight": {"2"}}}
	const body = `{"service": {"name": "web"}, "localEndpoints": 2, "up": true, "a.b": "c"}`
	for _, test := range []struct{ expect, want string }{
		{"{status: 503}", ""},
		{"{status: 200}", "want status 200, saw 503"},
		{"{has: [localEndpoints]}", ""},
		{"{has: [elsewhere]}", `want "elsewhere"`},
		{`{header: {x-weight: "2"}}`, ""},
		{`{header: {x-weight: 2}}`, ""},
		{`{header: {X-Weight: "1"}}`, `want header X-Weight: 1, saw "2"`},
		{"{json: {service.name: web, localEndpoints: 2, up: true, a.b: c}}", ""},
		{"{json: {service: {name: web}}}", ""},
		{"{json: {service.name: other}}", "want service.name in the JSON to be other"},
		{"{json: {localEndpoints: 3}}", "want localEndpoints"},
		{`{json: {localEndpoints: "2"}}`, "want localEndpoints"},
		{"{json: {service.port: 1}}", "want service.port"},
		{"{json: {service.name.x: 1}}", "want service.name.x"},
	} {
		f, err := Parse("x.yaml", []byte(whole(`- http: {on: node1, url: "http://127.0.0.1/", expect: `+test.expect+"}")))
		if err != nil {
			t.Fatal(err)
		}
		want(t, test.expect, test.want, f.scripts[IPv4].steps[0].check.(httpCheck).compare(response, body))
	}
	if err := (httpCheck{json: map[string]any{"a": 1}}).compare(response, "no JSON"); err == nil {
		t.Error("a body that is no JSON was taken")
	}
}
