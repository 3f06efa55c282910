package scenario

import (
	"fmt"
	"io"
	"strings"
	"time"
)

// Results are all runs, in their order.
type Results []Result

// Counts returns how many runs passed, failed (errors too) and were skipped.
func (rs Results) Counts() (passed, failed, skipped int) {
	for _, r := range rs {
		switch r.Verdict {
		case Failed, Errored:
			failed++
		case Skipped:
			skipped++
		default:
			passed++
		}
	}
	return passed, failed, skipped
}

// Err is an error unless every run passed and there was one.
func (rs Results) Err() error {
	passed, failed, skipped := rs.Counts()
	if failed > 0 || skipped > 0 || passed == 0 {
		return fmt.Errorf("scenarios: %s", rs.total())
	}
	return nil
}

func (rs Results) total() string {
	passed, failed, skipped := rs.Counts()
	return fmt.Sprintf("%d passed, %d failed, %d skipped", passed, failed, skipped)
}

// Summary names the runs that a file's expect-fail speaks of, and ends with the line of the totals.
func (rs Results) Summary() string {
	var b strings.Builder
	for _, group := range []struct {
		verdict Verdict
		title   string
	}{{FailedExpected, "expected to fail"}, {PassedAnyhow, "was expected to fail"}} {
		var names []string
		for _, r := range rs {
			if r.Verdict == group.verdict {
				names = append(names, fmt.Sprintf("%s (%s)", r.Name, r.Family))
			}
		}
		if names != nil {
			fmt.Fprintf(&b, "%s: %s\n", group.title, strings.Join(names, ", "))
		}
	}
	return b.String() + rs.total() + "\n"
}

// Heading says what a report is about.
type Heading struct {
	Date     time.Time
	Proxy    string   // the proxy under test
	Versions []string // such as "kernel 6.1", one line each
}

// WriteReport writes a Markdown page with one row for each run.
func (rs Results) WriteReport(w io.Writer, h Heading) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Scenarios: %s\n\n%s, %s.\n", h.Proxy, h.Date.Format("2 January 2006 15:04 MST"), rs.total())
	if len(h.Versions) > 0 {
		b.WriteString("\n")
	}
	for _, v := range h.Versions {
		fmt.Fprintf(&b, "- %s\n", v)
	}
	b.WriteString("\n| file | family | result | about |\n| --- | --- | --- | --- |\n")
	for _, r := range rs {
		fmt.Fprintf(&b, "| %s | %s | %s | %s |\n", cell(r.Name), r.Family, cell(r.outcome()), cell(r.About))
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// outcome is the verdict, and for all but a plain pass what there is to know about it.
func (r Result) outcome() string {
	switch r.Verdict {
	case FailedExpected:
		return fmt.Sprintf("%s: %s", r.Verdict, r.Why)
	case Failed, Errored:
		return fmt.Sprintf("**%s**: %s", r.Verdict, r.Detail)
	}
	return string(r.Verdict)
}

// cell makes a text fit for a cell of a table.
func cell(text string) string {
	return strings.NewReplacer("|", `\|`, "\n", " ").Replace(text)
}
