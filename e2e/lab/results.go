package lab

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"path/filepath"
)

// Result is what became of one test.
type Result string

// The results, as go test has them.
const (
	Pass Result = "pass"
	Fail Result = "fail"
	Skip Result = "skip"
)

// Results are those of tests by name. A test that ran twice counts once.
type Results map[string]Result

// Add lays other results over these: a test that was skipped here and passed there has passed; a failure stays one.
func (r Results) Add(other Results) {
	for name, result := range other {
		old, ok := r[name]
		if !ok || old == Skip || result == Fail {
			r[name] = result
		}
	}
}

// OK says that something passed and nothing failed.
func (r Results) OK() bool {
	failed := 0
	passed := 0
	for result := range maps.Values(r) {
		switch result {
		case Pass:
			passed++
		case Fail:
			failed++
		}
	}
	return failed == 0 && passed > 0
}

// String is the line of totals.
func (r Results) String() string {
	counts := map[Result]int{}
	for result := range maps.Values(r) {
		counts[result]++
	}
	return fmt.Sprintf("%d passed, %d failed, %d skipped", counts[Pass], counts[Fail], counts[Skip])
}

const resultsFile = "results.json"

// Write hands the results from the guest to the host.
func (r Results) Write(g *Guest) error {
	data, err := json.Marshal(r)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(g.Dir, resultsFile), data, 0o644)
}

// ReadResults returns what the guest handed over.
func (h *Host) ReadResults() (Results, error) {
	data, err := os.ReadFile(filepath.Join(h.Dir, resultsFile))
	if err != nil {
		return nil, fmt.Errorf("the guest reported no results: %w", err)
	}
	var r Results
	return r, json.Unmarshal(data, &r)
}
