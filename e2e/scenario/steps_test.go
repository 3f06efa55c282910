package scenario

import (
	"errors"
	"slices"
	"testing"
)

func TestObjectSteps(t *testing.T) {
	w := networked(t)
	err := ran(t, w, checked(`
- apply: |
    {apiVersion: v1, kind: Service, metadata: {name: web}}
    ---
    {apiVersion: v1, kind: Service, metadata: {name: other}}
- slice: {service: web, port: 8080, ready: [a1]}
- slice: {service: web, port: 8080, ready: [b1]}
- slice: {service: web, id: 1, port: 8080, ready: [b1]}
- slice: {service: other, port: 8080, ready: [b1]}
- delete: endpointslice/web-slice-1
- delete: Service/web
- proxy: {on: node1, do: restart-after-kill, config: {mode: ipvs}, args: [-v]}
- proxy: {on: node2, do: restart}
- proxy: {on: node2, do: run, args: [--cleanup], expect: {exit: 0, has: [cleaned]}}
`))
	if err != nil {
		t.Fatal(err)
	}
	want := []string{
		"apply service/web", "apply service/other",
		"apply endpointslice/web-slice-0", "apply endpointslice/web-slice-0", "apply endpointslice/web-slice-1",
		"apply endpointslice/other-slice-0",
		"delete endpointslice/web-slice-1", "delete service/web", "delete endpointslice/web-slice-0",
		"kill node1", "start node1 map[mode:ipvs] [-v]", "stop node2", "start node2 map[] []", "run node2 [--cleanup]",
	}
	if !slices.Equal(w.diary, want) {
		t.Errorf("want %q\nhave %q", want, w.diary)
	}
}

// checked adds a check that holds.
func checked(steps string) string {
	return whole(steps + `- connect: {from: client, to: "127.0.0.1:7001", expect: {only: [a1]}}`)
}

func TestErrorsAreNotFailures(t *testing.T) {
	for name, steps := range map[string]string{
		"a command without expectation": `- run: {on: client, command: "false"}`,
		"a run without expectation":     `- proxy: {on: node1, do: run}`,
		"deleting what is not there":    `- delete: service/web`,
	} {
		w := networked(t)
		w.command = func(string, string) (string, int, error) { return "no", 1, nil }
		if err := ran(t, w, checked(steps+"\n")); err == nil || isFailure(err) {
			t.Errorf("%s: want an error that is no failure, have %v", name, err)
		}
	}
	w := networked(t)
	w.refuse = errors.New("unknown field")
	if err := ran(t, w, checked("- slice: {service: web, port: 8080, ready: [a1]}\n")); err == nil || isFailure(err) {
		t.Errorf("what the API server refuses: want an error that is no failure, have %v", err)
	}
}

func TestCommands(t *testing.T) {
	for _, test := range []struct{ expect, want string }{
		{"{exit: 3}", ""},
		{"{exit: 3, has: [text], lacks: [other]}", ""},
		{"{has: [text]}", "want exit status 0, saw 3; it printed: some text"},
		{"{exit: 3, has: [other]}", `want "other", saw "some text"`},
		{"{exit: 3, lacks: [text]}", `want no "text"`},
	} {
		w := &fakeWorld{command: func(host, line string) (string, int, error) { return "some text\n", 3, nil }}
		err := ran(t, w, whole(`- run: {on: client, command: "x", expect: `+test.expect+"}"))
		want(t, test.expect, test.want, err)
	}
}

func TestEvents(t *testing.T) {
	w := &fakeWorld{reasons: []string{"One", "Two"}}
	want(t, "there", "", ran(t, w, whole("- events: {on: service/web, has: [Two]}")))
	want(t, "missing", `want "Three", saw One, Two`, ran(t, w, whole("- events: {on: service/web, within: 1ms, has: [Three]}")))
}

func TestTrafficSteps(t *testing.T) {
	const hold = "- hold: {name: c1, from: client, to: \"127.0.0.1:7001\", bind: 40000}\n"
	const load = "- load: {name: l1, from: client, to: \"127.0.0.1:7001\", rate: 100}\n"
	const stream = "- udp-stream: {name: u1, from: client, to: \"127.0.0.1:7002\", bind: 40053, every: 5ms}\n"
	for _, test := range []struct{ steps, want string }{
		{`- connect: {from: client, to: "127.0.0.1:7001", times: 3, expect: {only: [a1], source: 127.0.0.1}}`, ""},
		{`- connect: {from: client, to: "127.0.0.1:7002", within: 1ms, expect: {only: [a1]}}`,
			"step 1 (line 4): connect from client to 127.0.0.1:7002 over tcp: want only a1, saw b1"},
		{`- connect: {from: client, to: "127.0.0.1:7002", proto: udp, expect: {only: [b1]}}`, ""},
		{`- connect: {from: client, to: "127.0.0.1:9", expect: {result: refused}}`, ""},
		{`- connect: {from: client, to: "127.0.0.1:9", proto: udp, expect: {result: refused, max: 1500ms}}`, ""},

		{hold + "- held: {name: c1, expect: {alive: true, backend: a1}}\n- close: c1", ""},
		{hold + "- held: {name: c1, for: 200ms, expect: {backend: a1}}", ""},
		{hold + "- held: {name: c1, within: 1ms, expect: {backend: b1}}", "held c1: want it alive at b1, saw it alive at a1"},
		{hold + "- held: {name: c1, within: 1ms, expect: {alive: false}}", "want it closed, saw it alive at a1"},
		{"- hold: {name: c1, from: client, to: \"127.0.0.1:9\"}\n- held: {name: c1, expect: {alive: true}}",
			"hold c1 from client to 127.0.0.1:9 over tcp: want a connection, saw refused"},

		{load + "- load: {stop: l1, expect: {errors: 0, atLeast: 10, only: [a1], slower-than: {2s: 0}}}", ""},
		{load + "- load: {stop: l1, within: 50ms, expect: {atLeast: 10000}}", "want at least 10000 answers; saw "},
		{load + "- load: {stop: l1, within: 50ms, expect: {only: [b1]}}", "want answers of each of b1 only"},
		{load + "- load: {stop: l1, within: 50ms, expect: {errors: \">=1\"}}", "want errors >=1"},
		{"- load: {name: l1, from: client, to: \"127.0.0.1:9\", rate: 100, every-port: true}\n- wait: 100ms\n- load: {stop: l1, within: 1ms, expect: {errors: 0}}",
			"times refused"},

		{stream + "- udp-stream: {stop: u1, expect: {lost: 0, last: b1}}", ""},
		{stream + "- udp-stream: {stop: u1, within: 50ms, expect: {last: a1}}", "want last a1; saw"},

		{`- http: {on: node1, url: "http://127.0.0.1:9/", within: 1ms, expect: {status: 200}}`, "want an answer, saw"},
	} {
		want(t, test.steps, test.want, ran(t, networked(t), whole(test.steps)))
	}
}
