package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
)

// kernelVariable tells a test that it stands in a network namespace of its own, on a kernel with IPVS.
const kernelVariable = "KUBE_IPVS_KERNEL"

// contractJob runs the tests of every package that has tests for the kernel. There a skipped test is a failure.
func contractJob(results lab.Results) lab.Job {
	return lab.Job{
		Name: "contract", Summary: "run the kernel tests of the project's packages: contract [PACKAGE ...]",
		Prepare: buildContract,
		Run:     runContract,
		Finish: func(h *lab.Host) error {
			got, err := h.ReadResults()
			if err != nil {
				return err
			}
			results.Add(got)
			return nil
		},
	}
}

// buildContract builds the test binaries. The arguments for the guest are a package and its binary each.
func buildContract(ctx context.Context, h *lab.Host, packages []string) ([]string, error) {
	if len(packages) == 0 {
		var err error
		if packages, err = kernelPackages(h.Repo); err != nil {
			return nil, err
		}
	}
	var args []string
	for _, pkg := range packages {
		pkg = strings.Trim(strings.TrimPrefix(pkg, "./"), "/")
		binary, err := h.BuildTest(ctx, "./"+pkg)
		if err != nil {
			return nil, err
		}
		if binary == "" {
			return nil, fmt.Errorf("package %s has no tests", pkg)
		}
		args = append(args, pkg, binary)
	}
	return args, nil
}

// kernelPackages finds the folders with tests that ask for the kernel. The traffic of the scenarios needs SCTP, which
// the kernel of a build machine may not have.
func kernelPackages(repo string) ([]string, error) {
	var packages []string
	err := filepath.WalkDir(repo, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path != repo && strings.HasPrefix(entry.Name(), ".") {
			return fs.SkipDir
		}
		if entry.IsDir() || !strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		pkg, err := filepath.Rel(repo, filepath.Dir(path))
		if err == nil && bytes.Contains(text, []byte(kernelVariable)) && !slices.Contains(packages, pkg) {
			packages = append(packages, pkg)
		}
		return err
	})
	return append(packages, "e2e/traffic"), err
}

func runContract(ctx context.Context, g *lab.Guest, args []string) error {
	results := lab.Results{}
	for pair := range slices.Chunk(args, 2) {
		got, err := runTestBinary(ctx, g, pair[0], pair[1])
		if err != nil {
			return err
		}
		results.Add(got)
	}
	if err := results.Write(g); err != nil {
		return err
	}
	fmt.Println(results)
	if !results.OK() {
		return lab.Unsuccessful{}
	}
	return nil
}

// runTestBinary runs one test binary in namespaces of its own, in its package's folder.
func runTestBinary(ctx context.Context, g *lab.Guest, pkg, binary string) (lab.Results, error) {
	fmt.Printf("=== %s\n", pkg)
	space, err := netns.New("/run/netns", "contract", g.Dir, g.Repo)
	if err != nil {
		return nil, err
	}
	defer space.Close()
	cmd := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=10m")
	cmd.Dir = filepath.Join(g.Repo, pkg)
	cmd.Env = append(os.Environ(), kernelVariable+"=1")
	tests := &testOutput{pkg: pkg, results: lab.Results{}}
	cmd.Stdout, cmd.Stderr = tests, tests
	if err := space.Do(cmd.Start); err != nil {
		return nil, fmt.Errorf("starting the tests of %s: %w", pkg, err)
	}
	err = cmd.Wait()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return nil, err
	}
	return tests.end(err), nil
}

// testOutput passes the output of a test binary on and reads the results from it.
type testOutput struct {
	pkg     string
	results lab.Results
	rest    []byte // an unfinished line
}

var resultLine = regexp.MustCompile(`^\s*--- (PASS|FAIL|SKIP): (\S+)`)

func (o *testOutput) Write(data []byte) (int, error) {
	o.rest = append(o.rest, data...)
	for {
		line, rest, found := bytes.Cut(o.rest, []byte("\n"))
		if !found {
			break
		}
		o.line(string(line))
		o.rest = rest
	}
	return os.Stdout.Write(data)
}

func (o *testOutput) line(text string) {
	found := resultLine.FindStringSubmatch(text)
	if found == nil {
		return
	}
	result := lab.Result(strings.ToLower(found[1]))
	if result == lab.Skip {
		result = lab.Fail // the kernel is here: nothing may say that it is not
		fmt.Fprintf(os.Stdout, "lab: %s was skipped, which counts as a failure\n", found[2])
	}
	o.results[testName(o.pkg, found[2])] = result
}

// end adds what no line says: a binary that broke.
func (o *testOutput) end(err error) lab.Results {
	if err != nil && o.results.OK() || len(o.results) == 0 {
		fmt.Printf("lab: the tests of %s broke: %v\n", o.pkg, err)
		o.results[testName(o.pkg, "")] = lab.Fail
	}
	return o.results
}

// testName is the name that a test has in the results, in the lab and outside it.
func testName(pkg, test string) string { return pkg + "." + test }
