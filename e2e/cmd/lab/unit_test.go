package main

import (
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
)

func TestUnitReadsGoTest(t *testing.T) {
	events := `{"Action":"start","Package":"github.com/kube-ipvs/kube-ipvs/vip"}
{"Action":"run","Package":"github.com/kube-ipvs/kube-ipvs/vip","Test":"TestA"}
{"Action":"output","Package":"github.com/kube-ipvs/kube-ipvs/vip","Test":"TestA","Output":"--- PASS: TestA\n"}
{"Action":"pass","Package":"github.com/kube-ipvs/kube-ipvs/vip","Test":"TestA","Elapsed":0.1}
{"Action":"skip","Package":"github.com/kube-ipvs/kube-ipvs/vip","Test":"TestB"}
{"Action":"pass","Package":"github.com/kube-ipvs/kube-ipvs/vip","Elapsed":0.2}
{"Action":"skip","Package":"github.com/kube-ipvs/kube-ipvs/state","Elapsed":0}
{"Action":"fail","Package":"github.com/kube-ipvs/kube-ipvs/broken","Elapsed":0}
`
	u := unitTests{results: lab.Results{}, output: map[string]string{}}
	if err := u.read(strings.NewReader(events)); err != nil {
		t.Fatal(err)
	}
	if got, want := u.results.String(), "1 passed, 1 failed, 1 skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	if u.results["vip.TestA"] != "pass" {
		t.Errorf("got %v", u.results)
	}
}

func TestContractTakesASkipForAFailure(t *testing.T) {
	o := &testOutput{pkg: "vip", results: lab.Results{}}
	for _, piece := range []string{"=== RUN   TestA\n--- PASS: Te", "stA (0.00s)\n    --- SKIP: TestA/sub (0.00s)\n", "--- PASS: TestB (0.1s)\n"} {
		if _, err := o.Write([]byte(piece)); err != nil {
			t.Fatal(err)
		}
	}
	if got, want := o.end(nil).String(), "2 passed, 1 failed, 0 skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestContractOfABrokenBinary(t *testing.T) {
	o := &testOutput{pkg: "vip", results: lab.Results{}}
	if got, want := o.end(nil).String(), "0 passed, 1 failed, 0 skipped"; got != want {
		t.Errorf("no test ran: got %q, want %q", got, want)
	}
}
