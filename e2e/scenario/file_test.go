package scenario

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestFilesParse reads the scenarios of the project, and those of the directories in SCENARIOS (separated by colons).
func TestFilesParse(t *testing.T) {
	for _, dir := range append([]string{"../scenarios"}, filepath.SplitList(os.Getenv("SCENARIOS"))...) {
		files, err := Find(dir)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range files {
			if _, err := Read(path); err != nil {
				t.Error(err)
			}
		}
	}
}

// whole puts steps into a file that is right in all else.
func whole(steps string) string {
	return "name: x\nabout: y\nsteps:\n" + steps + "\n"
}

// checking adds a step that checks something.
func checking(steps string) string {
	return whole(steps + "\n- connect: {from: client, to: \"vip1:80\", expect: {result: ok}}")
}

func TestParseAcceptsEveryStep(t *testing.T) {
	text := `
name: x
about: y
reports: [kubernetes/kubernetes#1]
proxy: {nodePortAddresses: ["${node1}/32"], ipvs: {scheduler: rr}}
families: [ipv4, ipv6]
expect-fail: {kube-proxy: because}
steps:
- apply: |
    apiVersion: v1
    kind: Service
    metadata: {name: web}
    spec: {clusterIP: "${cluster1}", externalIPs: ["${vip9}"]}
    ---
    # nothing
    ---
    {apiVersion: v1, kind: Node, metadata: {name: node1}}
- slice: {service: web, id: 3, port: 8080, name: http, proto: UDP, ready: [a1], notready: [a2], terminating: [b1],
    stopped: [b2], hosts: [node1], hints: {a1: zone-a}, nodeHints: {node1: node1}}
- slice: {service: web, port: 8080, ready: []}
- delete: service/web
- delete: [service/web, endpointslice/kube-system/x]
- proxy: {on: node1, do: stop}
- proxy: {on: node1, do: start, config: {mode: ipvs}, args: [--v=4]}
- proxy: {on: node2, do: restart-after-kill}
- proxy: {on: node2, do: kill}
- proxy: {on: node2, do: restart}
- proxy: {on: node2, do: run, args: [--cleanup], expect: {exit: 0}}
- run: {on: client, command: "for d in x; do echo $d ${d%x} ${a1}; done"}
- run: {on: client, command: "true", expect: {exit: 0, has: [a], lacks: [b]}}
- hold: {name: c1, from: client, to: "vip1:80", proto: tcp, bind: 40000}
- load: {name: l1, from: client, to: "${vip1:80}", rate: 50, every-port: true}
- udp-stream: {name: u1, from: a1, to: "cluster1:53", bind: 40053, every: 100ms}
- wait: 2s
- mark: mark1
- connect: {from: client, to: "198.51.100.11:80", proto: SCTP, times: 20, within: 3s, for: 1s, expect: {only: [a1], among: [a1, b1], source: node, max: 300ms, same: true}}
- connect: {from: client, to: "[2001:db8::1]:80", times: 20, expect: {share: {a1: 10, b1: 10}, source: vip}}
- connect: {from: client, to: "node1:30080", times: 20, expect: {share: {a1: 40%, tolerance: 10%}, source: 10.0.0.1}}
- connect: {from: client, to: "node1:30080", expect: {result: [refused, timeout]}}
- held: {name: c1, for: 3s, expect: {alive: silent}}
- held: {name: c1, expect: {backend: b1}}
- close: c1
- load: {stop: l1, expect: {errors: "<=2", atLeast: 100, only: [a1], slower-than: {300ms: 0, 1s: "<= 2"}}}
- udp-stream: {stop: u1, expect: {lost: "<=1", last: b1}}
- http: {on: node1, url: "http://127.0.0.1:10256/healthz", expect: {status: 200, has: [ok], header: {X-Weight: "1"}, json: {service.name: web, n: 2, up: true}}}
- http: {on: node1, url: "http://${node1:31111}/", expect: {status: 200}}
- virtual-servers: {on: node1, has: ["-A -t ${cluster1:80} -s rr"], lacks: ["-A -f 7 -s rr"], exactly: []}
- addresses: {on: node1, has: ["${vip1}"], lacks: [203.0.113.9]}
- events: {on: service/web, has: [Reason]}
- unchanged: {on: node1, what: [virtual-servers, addresses, sets, rules], since: mark1}
`
	f, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	for family, want := range map[Family]string{IPv4: "10.96.0.101", IPv6: "fd00:96::101"} {
		spec := f.scripts[family].steps[0].action.(apply).objects[0]["spec"]
		if have := fmt.Sprint(spec); !strings.Contains(have, want) {
			t.Errorf("%s: want the ClusterIP %s, have %s", family, want, have)
		}
	}
}

// TestParseTellsWhatToChange holds one file for each thing that can be wrong. Each must fail with its line, and with
// words that tell how to repair it.
func TestParseTellsWhatToChange(t *testing.T) {
	for _, test := range []struct{ text, want string }{
		{"", "x.yaml: the file is empty; write name, about and steps"},
		{"name: [", "x.yaml: no YAML: line 1"},
		{"- a", "x.yaml:1: the file is a list; write a map"},
		{checking("- wait: 1s") + "---\nname: z\n", "a second document begins here"},
		{"name: z\nabout: y\nsteps: [{wait: 1s}]", `x.yaml:1: name is "z" but the file is called x.yaml; write name: x`},
		{"about: y\nsteps: [{wait: 1s}]", `the file lacks "name"; write for example name: x`},
		{"name: x\nsteps: [{wait: 1s}]", `the file lacks "about"`},
		{"name: x\nabout: y", `the file lacks "steps"`},
		{"name: x\nabout: y\nsteps: {}", "x.yaml:3: steps is a map; write a list"},
		{"name: x\nname: x\nabout: y\nsteps: []", `x.yaml:2: the file has the key "name" twice`},
		{"name: x\nabout: y\nfamilies: [ipv5]\nsteps: []", `x.yaml:3: families names "ipv5"; write ipv4, ipv6 or both`},
		{"name: x\nabout: y\nfamilies: ipv6\nsteps: []", `x.yaml:3: families is "ipv6"; write a list, such as families: [ipv6]`},
		{"name: x\nabout: y\nproxy: ipvs\nsteps: []", `x.yaml:3: proxy is "ipvs"; write a map of fields`},
		{"name: x\nabout: y\nexpect-fail: true\nsteps: []", `x.yaml:3: expect-fail is "true"; write a map`},
		{"name: x\nabuot: y\nsteps: []", `x.yaml:2: the file has the unknown key "abuot"; did you mean "about"?`},

		{whole("- wait: 1s"), "the file checks nothing and would always pass; add a step"},
		{whole("- wait: 1"), `x.yaml:4: wait is "1"; write a time with its unit`},
		{whole("- conect: {}"), `x.yaml:4: there is no step "conect"; did you mean "connect"?`},
		{whole("- connect"), `x.yaml:4: a step is "connect"; write a map with one key`},
		{whole("- wait: 1s\n  within: 3s"), `x.yaml:5: the step wait has a second key "within"; put it inside the step's own map`},

		{whole("- connect: {form: a1, to: \"vip1:80\", expect: {result: ok}}"), `connect has the unknown key "form"; did you mean "from"?`},
		{whole("- connect: {to: \"vip1:80\", expect: {result: ok}}"), `connect lacks "from"; write for example from: client`},
		{whole("- connect: {from: a9, to: \"vip1:80\", expect: {result: ok}}"), `from names "a9", which is no host; did you mean "a1"?`},
		{whole("- connect: {from: a1, to: vip1, expect: {result: ok}}"), `to is "vip1"; write a name or an address and a port, such as "vip1:80"`},
		{whole("- connect: {from: a1, to: \"vip0:80\", expect: {result: ok}}"), `to names "vip0", which is unknown; did you mean "vip1"?`},
		{whole("- connect: {from: a1, to: \"vip1:80\"}"), `connect lacks "expect"`},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {}}"), "expect is empty and would always hold"},
		{whole("- connect: {from: a1, to: \"vip1:80\", proto: icmp, expect: {result: ok}}"), `proto is "icmp"; known: tcp, udp, sctp`},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: many, expect: {result: ok}}"), `times is "many"; write a whole number`},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: 0, expect: {result: ok}}"), `times is "0"; write a whole number from 1`},
		{whole("- connect: {from: a1, to: \"vip1:80\", within: 5, expect: {result: ok}}"), `within is "5"; write a time with its unit`},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {only: a1}}"), `only is "a1"; write a list, such as only: [a1]`},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {only: []}}"), "only is empty and says nothing"},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {only: [a1, b1]}}"), "only names 2 hosts, each of which must answer, but times is 1; write times: 2 or more"},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {only: [a7]}}"), `only names "a7", which is no host`},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {result: reset}}"), `result is "reset"; known: ok, refused, timeout`},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {result: refused, only: [a1]}}"), "only looks at answers, but result allows none"},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {source: nod}}"), `source is "nod", neither an address nor a known name; did you mean "node"?`},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: 4, expect: {share: {a1: 3, b1: 3}}}"), "the shares add up to 6 but times is 4"},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: 4, expect: {share: {a1: 3, b1: 10%}}}"), "share mixes counts and percentages"},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: 4, expect: {share: {a1: 3, tolerance: 10%}}}"), "a tolerance belongs to percentages"},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: 4, expect: {share: {a1: 60%, b1: 60%}}}"), "the shares add up to 120%"},
		{whole("- connect: {from: a1, to: \"vip1:80\", times: 4, expect: {share: {a1: 60%, tolerance: 3}}}"), `tolerance is "3"; write a whole percentage`},
		{whole("- connect: {from: a1, to: \"vip1:80\", expect: {same: false}}"), "write same: true or leave it out"},

		{checking("- apply: |\n    kind: Service\n    metadata: {name: web}"), "x.yaml:5: the object that begins here lacks apiVersion"},
		{checking("- apply: |\n    a: [\n"), "x.yaml:4: apply holds no YAML"},
		{checking("- apply: |\n    a: 1\n    a: 2\n"), `the key "a" stands there twice`},
		{checking("- apply: |\n    apiVersion: v1\n    kind: X\n    metadata: {name: \"${clutser1}\"}"), `x.yaml:7: ${clutser1}: no such name (a variable of the shell is written without braces); did you mean "cluster1"?`},
		{checking("- run: {on: node1, command: \"echo ${vip1:99999}\"}"), "a port is a number from 1 to 65535"},
		{checking("- run: {on: node1}"), `run lacks "command"`},
		{checking("- run: {on: node1, command: x, expect: {exit: bad}}"), `exit is "bad"; write a whole number`},
		{checking("- run: {on: node1, command: x, expect: {out: bad}}"), `expect has the unknown key "out"`},
		{checking("- slice: {service: web, port: 8080, ready: [node1]}"), `ready names "node1", which is no pod; known: a1, a2, b1, b2`},
		{checking("- slice: {service: web, port: 8080, ready: [a1], stopped: [a1]}"), "a1 stands in two lists of the slice"},
		{checking("- slice: {service: web, port: 8080, ready: [a1], hints: {b1: zone-a}}"), `hints has the unknown key "b1"`},
		{checking("- slice: {service: web, port: 99999, ready: [a1]}"), `port is "99999"; write a whole number from 1 to 65535`},
		{checking("- slice: {service: web, ready: [a1]}"), `slice lacks "port"`},
		{checking("- delete: web"), `delete is "web"; write kind/name`},
		{checking("- delete: []"), "delete names nothing"},
		{checking("- proxy: {on: a1, do: stop}"), `on names "a1", which is no node; known: node1, node2`},
		{checking("- proxy: {on: node1, do: reboot}"), `do is "reboot"; known: start, stop, kill`},
		{checking("- proxy: {on: node1, do: stop, args: [x]}"), "args means nothing to do: stop"},
		{checking("- proxy: {on: node1, do: start, expect: {exit: 0}}"), "expect belongs to do: run"},

		{checking("- hold: {name: c1, from: a1, to: \"vip1:80\"}\n- hold: {name: c1, from: a1, to: \"vip1:80\"}"), "x.yaml:5: hold c1 is open already, since line 4"},
		{checking("- close: c1"), "there is no hold c1 before this line; begin it with the step hold: {name: c1, …}"},
		{checking("- hold: {name: c1, from: a1, to: \"vip1:80\"}\n- close: c1\n- held: {name: c1, expect: {alive: true}}"), "hold c1 was ended by an earlier step"},
		{checking("- hold: {name: c1, from: a1, to: \"vip1:80\"}\n- held: {name: c1, expect: {alive: maybe}}"), `alive is "maybe"; known: true, false, silent`},
		{checking("- hold: {name: c1, from: a1, to: \"vip1:80\"}\n- held: {name: c1, expect: {}}"), "expect is empty; write {alive: true}"},
		{checking("- hold: {name: c1, from: a1, to: \"vip1:80\"}\n- held: {name: c1, expect: {alive: false, backend: a1}}"), "backend looks at an answer, but alive wants none"},
		{checking("- load: {name: l1, from: a1, to: \"vip1:80\", rate: 5}"), "x.yaml:4: load l1 is never stopped"},
		{checking("- udp-stream: {name: u1, from: a1, to: \"vip1:53\", bind: 40053, every: 1s}"), "x.yaml:4: udp-stream u1 is never stopped"},
		{checking("- load: {stop: l1, expect: {errors: 0}}"), "there is no load l1 before this line"},
		{checking("- load: {name: l1, from: a1, to: \"vip1:80\", rate: 5}\n- load: {stop: l1, expect: {errors: few}}"), `errors is "few"; write a number or a comparison`},
		{checking("- load: {name: l1, from: a1, to: \"vip1:80\", rate: 5}\n- load: {stop: l1, expect: {errors: \"~2\"}}"), `errors is "~2"; write a number or a comparison`},
		{checking("- load: {name: l1, from: a1, to: \"vip1:80\", rate: 5}\n- load: {stop: l1, expect: {slower-than: {fast: 0}}}"), `the time of slower-than is "fast"; write a time`},
		{checking("- load: {name: l1, from: a1, to: \"vip1:80\", rate: 5}\n- load: {stop: l1}"), `load lacks "expect"`},

		{whole("- http: {on: node1, url: \"https://192.0.2.11/\", expect: {status: 200}}"), "write it with http://"},
		{whole("- http: {on: node1, url: \"http://example.org/\", expect: {status: 200}}"), "write an address, such as http://192.0.2.11:80/"},
		{whole("- http: {on: node1, url: \"http://127.0.0.1/\", expect: {}}"), "expect is empty; write for example {status: 200}"},
		{whole("- virtual-servers: {on: node1}"), "virtual-servers checks nothing; add has, lacks or exactly"},
		{whole("- virtual-servers: {on: node1, has: [\"-t 10.0.0.1:80\"]}"), "write -A for a virtual server or -a for a real server"},
		{whole("- virtual-servers: {on: node1, has: [\"-A -t 10.0.0.1 -s rr\"]}"), "is no address with a port"},
		{whole("- virtual-servers: {on: node1, has: [\"-A -t 10.0.0.1:80 -z rr\"]}"), `it has the unknown option "-z"`},
		{whole("- virtual-servers: {on: a1, has: [\"-A -f 1 -s rr\"]}"), `on names "a1", which is no node`},
		{whole("- addresses: {on: node1, has: [vip1]}"), `has has "vip1", which is no address; write it without a length, such as 203.0.113.1 or ${vip1}`},
		{whole("- addresses: {on: node1}"), "addresses checks nothing; add has or lacks"},
		{whole("- events: {on: web, has: [x]}"), `on is "web"; write kind/name`},
		{whole("- events: {on: service/web}"), `events lacks "has"`},
		{whole("- unchanged: {on: node1, what: [sets], since: m}"), "there is no mark m before this line; add the step mark: m"},
		{whole("- mark: m\n- unchanged: {on: node1, what: [routes], since: m}"), `what names "routes"; did you mean "rules"?`},
		{checking("- mark: m\n- mark: m"), "there is a mark m already"},
	} {
		f, err := Parse("x.yaml", []byte(test.text))
		if err == nil {
			t.Errorf("taken, want %q:\n%s", test.want, test.text)
			continue
		}
		if f != nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("want %q, have:\n%v\nfor:\n%s", test.want, err, test.text)
		}
		var fault *Fault
		if !errors.As(err, &fault) {
			t.Errorf("want a fault with its place, have %T", err)
		}
	}
}

func TestFaultsAreReportedTogether(t *testing.T) {
	_, err := Parse("x.yaml", []byte("name: z\nabout: y\nfamilies: [ipv4, ipv6]\nsteps:\n- wait: 1\n- wait: 2\n- connect: {}\n"))
	lines := strings.Split(err.Error(), "\n")
	if len(lines) != 6 {
		t.Errorf("want each fault once, in the order of the file, have:\n%v", err)
	}
}

func TestFind(t *testing.T) {
	dir := t.TempDir()
	if _, err := Find(dir); err == nil {
		t.Error("an empty directory was taken")
	}
	if _, err := Find(filepath.Join(dir, "none.yaml")); err == nil {
		t.Error("a path that is not there was taken")
	}
	for _, name := range []string{"b.yaml", "a.yml", "c.txt"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	have, err := Find(dir, filepath.Join(dir, "c.txt"))
	if err != nil || len(have) != 3 || filepath.Base(have[0]) != "a.yml" || filepath.Base(have[2]) != "c.txt" {
		t.Errorf("want a.yml, b.yaml and c.txt, have %v, %v", have, err)
	}
}
