package kubeipvs_test

import (
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
)

// behaviours is how many numbered behaviours of Services there are, S1 to S95.
const behaviours = 95

// unnamed are the behaviours that need no test of ours, with the reason. Of
// some others a part is not named either: dropping what is sent to unallocated
// addresses of the Service CIDRs (S41) and NodePorts on localhost (S64) are not
// promised.
var unnamed = map[int]string{
	50: "not so here: IPVS keeps affinity for each virtual server, not for a Service port with all its addresses",
	53: "the kernel's own doing: persistence goes by the source address",
	63: "the kernel's own doing: IPVS answers from the address that was called",
	80: "not so here: no rule drops packets in state INVALID, since IPVS translates replies by a table of its own",
}

// TestEveryBehaviourIsNamed fails if a numbered behaviour is named in no test,
// script or scenario: "S25", or in a range such as "S30 to S38".
func TestEveryBehaviourIsNamed(t *testing.T) {
	named := namedBehaviours(t)
	for n := 1; n <= behaviours; n++ {
		if _, exempt := unnamed[n]; !exempt && named[n] == "" {
			t.Errorf("S%d is named in no test", n)
		}
	}
}

// namedBehaviours tells for each number a file that names it.
func namedBehaviours(t *testing.T) map[int]string {
	t.Helper()
	found := map[int]string{}
	err := fs.WalkDir(os.DirFS("."), ".", func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() || path == "services_test.go" || !mayName(path) {
			return err
		}
		text, err := os.ReadFile(path)
		for _, n := range numbers(string(text)) {
			found[n] = path
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

// mayName tells whether a file is a test, a script or a scenario.
func mayName(path string) bool {
	return strings.HasSuffix(path, "_test.go") || strings.HasSuffix(path, ".txtar") ||
		filepath.Dir(path) == "e2e/scenarios" && filepath.Ext(path) == ".yaml"
}

// A number stands as a word, in a range, or in the name of a test, such as
// TestS20OlderServiceKeepsTheAddress.
var (
	rangePattern  = regexp.MustCompile(`\bS(\d{1,2}) to S?(\d{1,2})\b`)
	numberPattern = regexp.MustCompile(`(?:\b|\bTest|/)S(\d{1,2})(?:\b|[A-Z])`)
)

// numbers lists the behaviours that a text names.
func numbers(text string) []int {
	var list []int
	for _, m := range rangePattern.FindAllStringSubmatch(text, -1) {
		first, _ := strconv.Atoi(m[1])
		last, _ := strconv.Atoi(m[2])
		for n := first; n <= last; n++ {
			list = append(list, n)
		}
	}
	for _, m := range numberPattern.FindAllStringSubmatch(text, -1) {
		n, _ := strconv.Atoi(m[1])
		list = append(list, n)
	}
	return list
}

func TestNumbers(t *testing.T) {
	for text, want := range map[string]string{
		"# S30 to S32, S40": "[30 31 32 30 32 40]", "TestS7NothingIsKept": "[7]", `"S9 the host's"`: "[9]",
		"S123, AS4, IPVS5, TestSome, S": "[]",
	} {
		if got := fmt.Sprint(numbers(text)); got != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
}
