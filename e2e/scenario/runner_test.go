package scenario

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

const (
	passing = `- connect: {from: client, to: "127.0.0.1:7001", expect: {only: [a1]}}`
	failing = `- connect: {from: client, to: "127.0.0.1:7001", within: 1ms, expect: {only: [b1]}}`
)

// scenarios writes files, by name.
func scenarios(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		text = strings.Replace(text, "name: x", "name: "+name, 1)
		if err := os.WriteFile(filepath.Join(dir, name+".yaml"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// printed runs files and returns what was printed, with every time as 0.0s.
func printed(t *testing.T, r *Runner, files map[string]string) (string, Results, error) {
	t.Helper()
	var out bytes.Buffer
	r.Out, r.Failures = &out, "kept"
	t.Chdir(t.TempDir())
	results, err := r.Run(t.Context(), scenarios(t, files))
	return regexp.MustCompile(`\d+\.\ds`).ReplaceAllString(out.String(), "0.0s"), results, err
}

func TestRunnerVerdicts(t *testing.T) {
	known := "expect-fail: {kube-proxy: never did}\nsteps:\n"
	lab := &fakeLab{world: networked(t)}
	out, _, err := printed(t, &Runner{Lab: lab, Proxy: "kube-proxy"}, map[string]string{
		"a-good":   strings.Replace(whole(passing), "steps:", "families: [ipv4, ipv6]\nsteps:", 1),
		"b-bad":    whole("- wait: 1ms\n" + failing),
		"c-broken": whole("- wait: 1"),
		"d-known":  strings.Replace(whole(failing), "steps:\n", known, 1),
		"e-cured":  strings.Replace(whole(passing), "steps:\n", known, 1),
		"f-lost":   strings.Replace(whole("- delete: service/web\n"+passing), "steps:\n", known, 1),
	})
	want := `ok a-good (ipv4) 0.0s
ok a-good (ipv6) 0.0s
FAIL b-bad (ipv4) step 2 (line 5): connect from client to 127.0.0.1:7001 over tcp: want only b1, saw a1; kept in kept/b-bad-ipv4
error c-broken c-broken.yaml:1: the file checks nothing and would always pass; add a step such as connect with expect; c-broken.yaml:4: wait is "1"; write a time with its unit, such as 300ms, 2s or 1m
ok (expected to fail) d-known (ipv4) 0.0s: never did; step 1 (line 5): connect from client to 127.0.0.1:7001 over tcp: want only b1, saw a1
ok (was expected to fail) e-cured (ipv4) 0.0s
error f-lost (ipv4) step 1 (line 5): delete service/web: not found; kept in kept/f-lost-ipv4
expected to fail: d-known (ipv4)
was expected to fail: e-cured (ipv4)
4 passed, 3 failed, 0 skipped
`
	if out != want {
		t.Errorf("want:\n%s\nhave:\n%s", want, out)
	}
	if err == nil {
		t.Error("want an error, since runs failed")
	}
	if len(lab.asked) != 6 || lab.asked[1].Family != IPv6 || lab.asked[0].Name != "a-good" {
		t.Errorf("worlds asked for: %+v", lab.asked)
	}
}

func TestRunnerAllWell(t *testing.T) {
	w := networked(t)
	out, results, err := printed(t, &Runner{Lab: &fakeLab{world: w}, Proxy: "kube-ipvs"}, map[string]string{"a": whole(passing)})
	if err != nil || !strings.HasSuffix(out, "\n1 passed, 0 failed, 0 skipped\n") {
		t.Errorf("have %v:\n%s", err, out)
	}
	if !w.closed || results[0].Kept != "" {
		t.Errorf("closed: %v, kept: %q", w.closed, results[0].Kept)
	}
}

func TestRunnerFaults(t *testing.T) {
	ended := &ProxyError{Node: "node1", Fault: "ended by itself"}
	for name, test := range map[string]struct {
		lab  func(*fakeWorld) *fakeLab
		hook func(context.Context, World) error
		want string
	}{
		"the proxy ends by itself": {func(w *fakeWorld) *fakeLab { w.ended = ended; return &fakeLab{world: w} }, nil,
			"FAIL a (ipv4) step 1 (line 4): proxy on node1: ended by itself; kept in"},
		"the proxy never gets ready": {func(w *fakeWorld) *fakeLab { return &fakeLab{world: w, err: ended} }, nil,
			"FAIL a (ipv4) before the first step: proxy on node1: ended by itself; kept in"},
		"the lab breaks": {func(*fakeWorld) *fakeLab { return &fakeLab{err: errors.New("no kernel")} }, nil,
			"error a (ipv4) before the first step: no kernel\n"},
		"the hook finds fault": {func(w *fakeWorld) *fakeLab { return &fakeLab{world: w} },
			func(context.Context, World) error { return errors.New("a second sync wrote") },
			"FAIL a (ipv4) after the last step: a second sync wrote; kept in"},
	} {
		t.Run(name, func(t *testing.T) {
			r := &Runner{Lab: test.lab(networked(t)), AfterFile: test.hook}
			out, _, err := printed(t, r, map[string]string{"a": whole(passing)})
			if err == nil || !strings.HasPrefix(out, test.want) {
				t.Errorf("want %q\nhave %q, %v", test.want, out, err)
			}
		})
	}
}

func TestRunnerInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var out bytes.Buffer
	r := &Runner{Lab: &fakeLab{}, Out: &out}
	_, err := r.Run(ctx, scenarios(t, map[string]string{"a": whole(passing)}))
	if err == nil || !strings.HasSuffix(out.String(), "0 passed, 0 failed, 1 skipped\n") {
		t.Errorf("have %v:\n%s", err, out.String())
	}
}

func TestReport(t *testing.T) {
	var out bytes.Buffer
	err := Results{
		{Name: "a", Family: IPv4, Verdict: Passed, About: "this | that"},
		{Name: "b", Family: IPv6, Verdict: Failed, Detail: "want x", About: "other"},
	}.WriteReport(&out, Heading{Date: time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC), Proxy: "kube-ipvs", Versions: []string{"kernel 6.1"}})
	want := `# Scenarios: kube-ipvs

1 March 2026 12:00 UTC, 1 passed, 1 failed, 0 skipped.

- kernel 6.1

| file | family | result | about |
| --- | --- | --- | --- |
| a | ipv4 | ok | this \| that |
| b | ipv6 | **FAIL**: want x | other |
`
	if err != nil || out.String() != want {
		t.Errorf("want:\n%s\nhave:\n%s%v", want, out.String(), err)
	}
}
