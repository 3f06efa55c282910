package scenario

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
)

// answersOf reads the `expect` of a connect.
func answersOf(t *testing.T, times, expect string) answers {
	t.Helper()
	f, err := Parse("x.yaml", []byte(whole(`- connect: {from: client, to: "vip1:80", times: `+times+`, expect: `+expect+`}`)))
	if err != nil {
		t.Fatal(err)
	}
	return f.scripts[IPv4].steps[0].check.(connect).expect
}

// attempts makes attempts of words: a host and perhaps the source it saw after an @, or a result.
func attempts(words ...string) []traffic.Attempt {
	var all []traffic.Attempt
	for _, word := range words {
		a := traffic.Attempt{Result: traffic.Result(word), Connect: 10 * time.Millisecond}
		host, source, ok := strings.Cut(word, "@")
		if _, isHost := FindHost(host); isHost {
			if !ok {
				source = "192.0.2.100"
			}
			a.Result = traffic.OK
			a.Answer = traffic.Answer{Host: host, Client: netip.AddrPortFrom(netip.MustParseAddr(source), 1)}
		}
		all = append(all, a)
	}
	return all
}

func TestJudge(t *testing.T) {
	for _, test := range []struct {
		times, expect string
		saw           []string
		want          string // in the failure, empty for none
	}{
		{"2", "{only: [a1, b1]}", []string{"a1", "b1"}, ""},
		{"2", "{only: [a1, b1]}", []string{"a1", "a1"}, "want only a1, b1, saw a1 (2 times)"},
		{"2", "{only: [a1]}", []string{"a1", "b1"}, "want only a1, saw a1, b1"},
		{"2", "{only: [a1]}", []string{"a1", "refused"}, "want only a1, saw a1, refused"},
		{"2", "{only: [a1]}", []string{"a1", "connected, no answer"}, "saw a1, connected, no answer"},
		{"2", "{among: [a1, b1]}", []string{"a1", "a1"}, ""},
		{"2", "{among: [a1, b1]}", []string{"a1", "b2"}, "want among a1, b1"},

		{"4", "{share: {a1: 2, b1: 2}}", []string{"a1", "b1", "b1", "a1"}, ""},
		{"4", "{share: {a1: 2, b1: 2}}", []string{"a1", "b1", "b1", "b1"}, "want share a1 2, b1 2, saw a1, b1 (3 times)"},
		{"4", "{share: {a1: 2, b1: 2}}", []string{"b2"}, "(ended after 1 of 4)"},
		{"4", "{share: {a1: 2}}", []string{"a1", "b1", "b2", "a1"}, ""},
		{"4", "{share: {a1: 2}}", []string{"a1", "b1", "b2", "b1"}, "want share a1 2"},
		{"4", "{share: {a1: 4, b1: 0}}", []string{"a1", "b1"}, "want share"},
		{"10", "{share: {a1: 40%, tolerance: 10%}}", []string{"a1", "a1", "a1", "b1", "b1", "b1", "b1", "b1", "b2", "b2"}, ""},
		{"10", "{share: {a1: 40%, tolerance: 10%}}", []string{"a1", "a1", "b1", "b1", "b1", "b1", "b1", "b1", "b2", "b2"}, "want share a1 40%, give or take 10 points"},
		{"10", "{share: {a1: 40%, tolerance: 10%}}", []string{"a1", "a1", "a1", "a1", "a1", "a1"}, "(ended after 6 of 10)"},
		{"10", "{share: {a1: 50%, b1: 50%, tolerance: 50%}}", []string{"a1", "b2"}, "saw a1, b2"},

		{"1", "{source: client}", []string{"a1@192.0.2.100"}, ""},
		{"1", "{source: client}", []string{"a1@2001:db8:2::100"}, ""},
		{"1", "{source: client}", []string{"a1@192.0.2.11"}, "want source client, saw a1, source 192.0.2.11"},
		{"1", "{source: 192.0.2.77}", []string{"a1@192.0.2.77"}, ""},
		{"1", "{source: node}", []string{"a1@192.0.2.12"}, ""},
		{"1", "{source: node}", []string{"a1@203.0.113.1"}, "want source node"},
		{"1", "{source: vip}", []string{"a1@203.0.113.9"}, ""},
		{"1", "{source: vip}", []string{"a1@10.96.0.101"}, "want source vip"},

		{"1", "{result: ok}", []string{"a1"}, ""},
		{"1", "{result: ok}", []string{"timeout"}, "want ok, saw timeout"},
		{"2", "{result: refused}", []string{"refused", "refused"}, ""},
		{"2", "{result: refused}", []string{"refused", "a1"}, "want refused, saw a1, refused"},
		{"2", "{result: [refused, timeout]}", []string{"refused", "timeout"}, ""},
		{"1", "{result: [refused, timeout]}", []string{"not sent (network is unreachable)"}, "want refused or timeout, saw not sent"},
		{"1", "{max: 20ms}", []string{"a1"}, ""},
		{"1", "{max: 5ms}", []string{"a1"}, "slowest connect 10ms"},
		{"1", "{result: refused, max: 5ms}", []string{"refused"}, "slowest connect 10ms"},
		{"3", "{same: true}", []string{"b1", "b1", "b1"}, ""},
		{"3", "{same: true}", []string{"b1", "b1", "b2"}, "want one and the same backend, saw b1 (2 times), b2"},
	} {
		err := judged(answersOf(t, test.times, test.expect), test.times, test.saw)
		switch {
		case (err == nil) != (test.want == ""):
			t.Errorf("%s of %s, saw %v: have %v", test.expect, test.times, test.saw, err)
		case err != nil && !strings.Contains(err.Error(), test.want):
			t.Errorf("%s of %s, saw %v: want %q, have %q", test.expect, test.times, test.saw, test.want, err)
		}
	}
}

func judged(a answers, times string, saw []string) error {
	n := 0
	for _, digit := range times {
		n = n*10 + int(digit-'0')
	}
	j := newJudge(a, n, func(a traffic.Attempt) (bool, error) {
		return isAddressOf("node1", a.Answer.Client.Addr()) || isAddressOf("node2", a.Answer.Client.Addr()), nil
	})
	for _, attempt := range attempts(saw...) {
		if err := j.add(attempt); err != nil {
			return err
		}
	}
	return j.end()
}
