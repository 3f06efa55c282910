package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
)

// module is the prefix of the project's import paths.
const module = "github.com/kube-ipvs/kube-ipvs"

// unit runs go test on the host and returns the results.
func unit(ctx context.Context, repo string, packages ...string) (lab.Results, error) {
	if len(packages) == 0 {
		packages = []string{"./..."}
	}
	cmd := exec.CommandContext(ctx, "go", append([]string{"test", "-json"}, packages...)...)
	cmd.Dir = repo
	cmd.Env = append(os.Environ(), kernelVariable+"=")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("starting go test: %w", err)
	}
	tests := unitTests{results: lab.Results{}, output: map[string]string{}}
	readErr := tests.read(stdout)
	err = cmd.Wait()
	if err != nil && tests.results.OK() || len(tests.results) == 0 {
		return tests.results, fmt.Errorf("go test: %w\n%s", err, stderr.String())
	}
	return tests.results, readErr
}

// unitTests collects what go test -json reports.
type unitTests struct {
	results lab.Results
	output  map[string]string // of the tests and packages that have not ended
}

// testEvent is a line of go test -json.
type testEvent struct {
	Action, Package, ImportPath, Test, Output string
	Elapsed                                   float64
}

func (u *unitTests) read(r io.Reader) error {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, 1<<24)
	for lines.Scan() {
		var e testEvent
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			return errors.New("go test printed: " + lines.Text())
		}
		u.event(e)
	}
	return lines.Err()
}

func (u *unitTests) event(e testEvent) {
	pkg := strings.TrimPrefix(strings.TrimPrefix(e.Package, module), "/")
	name := testName(pkg, e.Test)
	switch e.Action {
	case "build-output":
		fmt.Print(e.Output)
	case "output":
		u.output[name] += e.Output
	case "pass", "fail", "skip":
		if e.Action == "fail" {
			fmt.Print(u.output[name])
		}
		delete(u.output, name)
		if e.Test != "" {
			u.results[name] = lab.Result(e.Action)
			return
		}
		u.packageEnd(e, name)
	}
}

// packageEnd prints a line for a package that has tests. One that fails without a failed test did not build, or broke.
func (u *unitTests) packageEnd(e testEvent, name string) {
	if e.Action == "skip" {
		return
	}
	fmt.Printf("%-4s %s %.1fs\n", e.Action, e.Package, e.Elapsed)
	if e.Action == "fail" {
		u.results[name] = lab.Fail
	}
}
