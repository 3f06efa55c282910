package scenario

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"strings"
	"time"
)

// Runner runs scenario files one after another in a lab.
type Runner struct {
	Lab      Lab
	Proxy    string    // the proxy under test, as `expect-fail` names it: kube-ipvs or kube-proxy
	Slow     float64   // multiplies every `within`, `for` and `wait`; 0 is 1
	Failures string    // the directory under which the state of failed runs is kept
	Out      io.Writer // gets one line for each run, and the summary
	// AfterFile, if set, is asked about the world after the last step of a run that went well. Its error fails the file.
	AfterFile func(ctx context.Context, w World) error
}

// Verdict is what became of one run.
type Verdict string

// The verdicts, as they are printed.
const (
	Passed         Verdict = "ok"
	FailedExpected Verdict = "ok (expected to fail)"
	PassedAnyhow   Verdict = "ok (was expected to fail)"
	Failed         Verdict = "FAIL"
	Errored        Verdict = "error"   // the file is malformed or the lab broke
	Skipped        Verdict = "skipped" // the runner was interrupted before
)

// Result is one run of one file, or a file that could not be read.
type Result struct {
	Name    string
	About   string
	Family  Family // empty for a file that could not be read
	Verdict Verdict
	Detail  string // what was expected and what was seen
	Why     string // why it was expected to fail
	Kept    string // the directory that holds the state of the failed run
	Took    time.Duration
}

// String is the line that is printed.
func (r Result) String() string {
	line := fmt.Sprintf("%s %s", r.Verdict, r.Name)
	if r.Family != "" {
		line += fmt.Sprintf(" (%s)", r.Family)
	}
	switch r.Verdict {
	case Passed, PassedAnyhow:
		return fmt.Sprintf("%s %.1fs", line, r.Took.Seconds())
	case FailedExpected:
		return fmt.Sprintf("%s %.1fs: %s; %s", line, r.Took.Seconds(), r.Why, r.Detail)
	case Skipped:
		return line
	}
	if line += " " + r.Detail; r.Kept != "" {
		line += "; kept in " + r.Kept
	}
	return line
}

// Run runs each file once for each of its families. Paths are files and directories. The error says that a run did
// not go well, or that there was nothing to run.
func (r *Runner) Run(ctx context.Context, paths ...string) (Results, error) {
	files, err := Find(paths...)
	if err != nil {
		return nil, err
	}
	var results Results
	for _, path := range files {
		results = append(results, r.runFile(ctx, path)...)
	}
	fmt.Fprint(r.Out, results.Summary())
	return results, results.Err()
}

func (r *Runner) runFile(ctx context.Context, path string) Results {
	f, err := Read(path)
	if err != nil {
		detail := strings.ReplaceAll(err.Error(), "\n", "; ")
		detail = strings.ReplaceAll(detail, filepath.Dir(path)+string(filepath.Separator), "")
		return Results{r.report(Result{Name: baseName(path), Verdict: Errored, Detail: detail})}
	}
	var results Results
	for _, family := range f.Families {
		results = append(results, r.report(r.runFamily(ctx, f, family)))
	}
	return results
}

// report prints the line of a result.
func (r *Runner) report(result Result) Result {
	fmt.Fprintln(r.Out, result)
	return result
}

func (r *Runner) runFamily(ctx context.Context, f *File, family Family) Result {
	result := Result{Name: f.Name, About: f.About, Family: family}
	if ctx.Err() != nil {
		result.Verdict = Skipped
		return result
	}
	begun := time.Now()
	err := r.runScript(ctx, f, family, &result)
	result.Took = time.Since(begun)
	result.judge(err, f.ExpectFail[r.Proxy])
	return result
}

// judge makes a verdict of how a run ended.
func (r *Result) judge(err error, expectFail string) {
	r.Why = expectFail
	if err != nil {
		r.Detail = strings.ReplaceAll(err.Error(), "\n", "; ")
	}
	failed := isFailure(err)
	switch {
	case err != nil && !failed:
		r.Verdict = Errored
	case failed && expectFail != "":
		r.Verdict = FailedExpected
	case failed:
		r.Verdict = Failed
	case expectFail != "":
		r.Verdict = PassedAnyhow
	default:
		r.Verdict = Passed
	}
}

// isFailure says whether an error is of the proxy under test rather than of the file or the lab.
func isFailure(err error) bool {
	var seen *failure
	var ended *ProxyError
	return errors.As(err, &seen) || errors.As(err, &ended)
}

// runScript runs the steps in a world of their own.
func (r *Runner) runScript(ctx context.Context, f *File, family Family, result *Result) error {
	script := f.scripts[family]
	w, err := r.Lab.NewWorld(ctx, Options{Name: f.Name, Family: family, ProxyConfig: script.proxy})
	if err != nil {
		err = fmt.Errorf("before the first step: %w", err)
	}
	if w == nil {
		return err
	}
	s := newSession(w, family, max(r.Slow, 0))
	if r.Slow == 0 {
		s.slow = 1
	}
	if err == nil {
		err = r.runSteps(ctx, s, script.steps)
	}
	if err != nil {
		result.Kept, err = r.keep(ctx, w, f.Name, family, err)
	}
	return errors.Join(err, s.close(), closeWorld(w))
}

func closeWorld(w World) error {
	if err := w.Close(); err != nil {
		return fmt.Errorf("put the lab back: %w", err)
	}
	return nil
}

// keep collects the state of a failed run.
func (r *Runner) keep(ctx context.Context, w World, name string, family Family, failed error) (string, error) {
	dir := filepath.Join(r.Failures, fmt.Sprintf("%s-%s", name, family))
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	if err := w.Collect(ctx, dir); err != nil {
		return dir, errors.Join(failed, fmt.Errorf("collect the state: %w", err))
	}
	return dir, failed
}

func (r *Runner) runSteps(ctx context.Context, s *session, steps []step) error {
	for i, st := range steps {
		if err := errors.Join(st.run(ctx, s), s.proxies()); err != nil {
			return fmt.Errorf("step %d (line %d): %w", i+1, st.line, err)
		}
	}
	if r.AfterFile == nil {
		return nil
	}
	if err := r.AfterFile(ctx, s.world); err != nil {
		return fmt.Errorf("after the last step: %w", &failure{what: err.Error()})
	}
	return nil
}
