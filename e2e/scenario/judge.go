package scenario

import (
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
)

// judge compares the attempts of one try with what is expected of them.
type judge struct {
	answers
	times  int
	isNode func(traffic.Attempt) (bool, error) // the answer saw a node's own address

	made     int
	answered map[string]int
	failed   map[traffic.Result]int
	sources  map[string]int
	slowest  time.Duration
}

func newJudge(a answers, times int, isNode func(traffic.Attempt) (bool, error)) *judge {
	return &judge{
		answers: a, times: times, isNode: isNode,
		answered: map[string]int{}, failed: map[traffic.Result]int{}, sources: map[string]int{},
	}
}

// add takes one attempt. Its error is a *failure as soon as the try cannot hold any more.
func (j *judge) add(a traffic.Attempt) error {
	j.made++
	j.slowest = max(j.slowest, a.Connect)
	if a.Result == traffic.OK {
		j.answered[a.Answer.Host]++
		j.sources[a.Answer.Client.Addr().String()]++
	} else {
		j.failed[a.Result]++
	}
	ok, err := j.agrees(a)
	if err != nil {
		return err
	}
	if !ok {
		return j.fail()
	}
	return nil
}

// agrees says whether the attempts so far can still become what is wanted.
func (j *judge) agrees(a traffic.Attempt) (bool, error) {
	if !slices.Contains(j.results, a.Result) || (j.max > 0 && a.Connect > j.max) {
		return false, nil
	}
	if a.Result != traffic.OK {
		return true, nil
	}
	host := a.Answer.Host
	switch {
	case j.only != nil && !slices.Contains(j.only, host),
		j.among != nil && !slices.Contains(j.among, host),
		j.same && len(j.answered) > 1,
		j.share != nil && j.share.exceeded(host, j.answered, j.times):
		return false, nil
	}
	return j.sourceAgrees(a)
}

// exceeded says whether a host has already answered too often.
func (s *share) exceeded(host string, answered map[string]int, times int) bool {
	want, named := s.amount[host]
	if !s.percent {
		return named && answered[host] > want || !named && s.others(answered) > times-s.total()
	}
	return !named && s.total() == 100 || named && answered[host]*100 > (want+s.tolerance)*times
}

func (s *share) total() int {
	sum := 0
	for _, amount := range s.amount {
		sum += amount
	}
	return sum
}

// others counts the answers of hosts that have no share.
func (s *share) others(answered map[string]int) int {
	sum := 0
	for host, count := range answered {
		if _, named := s.amount[host]; !named {
			sum += count
		}
	}
	return sum
}

// end looks at the try as a whole after its last attempt.
func (j *judge) end() error {
	for _, host := range j.only {
		if j.answered[host] == 0 && slices.Equal(j.results, []traffic.Result{traffic.OK}) {
			return j.fail()
		}
	}
	if j.share == nil {
		return nil
	}
	for host, want := range j.share.amount {
		have := j.answered[host]
		if !j.share.percent && have != want || j.share.percent && have*100 < (want-j.share.tolerance)*j.times {
			return j.fail()
		}
	}
	return nil
}

func (j *judge) fail() error {
	return failf("want %s, saw %s", j.answers, j.saw())
}

// saw is a summary of the attempts.
func (j *judge) saw() string {
	var parts []string
	if len(j.answered) > 0 {
		parts = append(parts, counted(j.answered))
	}
	if len(j.failed) > 0 {
		parts = append(parts, counted(j.failed))
	}
	text := strings.Join(parts, ", ")
	if j.source != "" && len(j.sources) > 0 {
		text += ", source " + strings.Join(slices.Sorted(maps.Keys(j.sources)), " and ")
	}
	if j.max > 0 {
		text += fmt.Sprintf(", slowest connect %s", j.slowest.Round(time.Millisecond))
	}
	if j.made < j.times {
		text += fmt.Sprintf(" (ended after %d of %d)", j.made, j.times)
	}
	return text
}

// sourceAgrees says whether the backend saw the source that is wanted.
func (j *judge) sourceAgrees(a traffic.Attempt) (bool, error) {
	seen := a.Answer.Client.Addr()
	switch j.source {
	case "":
		return true, nil
	case "node":
		return j.isNode(a)
	case "vip":
		return isVIP(seen), nil
	}
	if want, err := netip.ParseAddr(j.source); err == nil {
		return seen == want.Unmap(), nil
	}
	return isAddressOf(j.source, seen), nil
}

func isAddress(word string) bool {
	_, err := netip.ParseAddr(word)
	return err == nil
}

// isAddressOf says whether an address is what a name stands for in either family.
func isAddressOf(name string, a netip.Addr) bool {
	for _, f := range []Family{IPv4, IPv6} {
		if of, ok := Address(name, f); ok && of == a {
			return true
		}
	}
	return false
}

func isVIP(a netip.Addr) bool {
	for n := 1; n <= 9; n++ {
		if isAddressOf(fmt.Sprintf("vip%d", n), a) {
			return true
		}
	}
	return false
}
