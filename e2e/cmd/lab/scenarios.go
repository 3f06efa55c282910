package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
	"github.com/kube-ipvs/kube-ipvs/e2e/lab/world"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// reportName is the report's name in the folder that host and guest share.
const reportName = "report.md"

// scenariosJob runs scenario files. SLOW multiplies their times, REPORT is where a Markdown table goes.
func scenariosJob(results lab.Results) lab.Job {
	return lab.Job{
		Name: "scenarios", Summary: "run scenario files: scenarios PATH ...", API: true, Proxy: true,
		Prepare: stageScenarios,
		Run:     runScenarios,
		Finish: func(h *lab.Host) error {
			got, err := h.ReadResults()
			if err != nil {
				return err
			}
			results.Add(got)
			return copyReport(h)
		},
	}
}

// stageScenarios copies the files to where the guest sees them, whatever folder they are in. The arguments for the
// guest are the factor of SLOW and the copies.
func stageScenarios(_ context.Context, h *lab.Host, paths []string) ([]string, error) {
	slow, err := slowFactor()
	if err != nil {
		return nil, err
	}
	files, err := scenario.Find(paths...)
	if err != nil {
		return nil, err
	}
	args := []string{slow}
	for i, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return nil, err
		}
		dir := filepath.Join(h.Dir, "scenarios", strconv.Itoa(i)) // two folders may have files of one name
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return nil, err
		}
		copied := filepath.Join(dir, filepath.Base(file))
		if err := os.WriteFile(copied, text, 0o644); err != nil {
			return nil, err
		}
		args = append(args, copied)
	}
	return args, nil
}

// slowFactor is the value of SLOW, checked.
func slowFactor() (string, error) {
	text := os.Getenv("SLOW")
	if text == "" {
		return "1", nil
	}
	if slow, err := strconv.ParseFloat(text, 64); err != nil || slow < 1 {
		return "", fmt.Errorf("SLOW is %q; it must be a number from 1 on", text)
	}
	return text, nil
}

func runScenarios(ctx context.Context, g *lab.Guest, args []string) error {
	slow, err := strconv.ParseFloat(args[0], 64)
	if err != nil {
		return err
	}
	l, err := world.Open(ctx, g, slow)
	if err != nil {
		return err
	}
	defer l.Close()
	runner := scenario.Runner{Lab: l, Proxy: g.ProxyName, Slow: slow, Failures: g.Failures, Out: os.Stdout}
	if g.ProxyName == "kube-ipvs" {
		runner.AfterFile = func(ctx context.Context, w scenario.World) error { return atRest(ctx, w, g.Proxy) }
	}
	runs, err := runner.Run(ctx, args[1:]...)
	if err != nil && len(runs) == 0 {
		return err
	}
	if err := errors.Join(scenarioResults(runs).Write(g), writeReport(g, runs)); err != nil {
		return err
	}
	if err != nil {
		return lab.Unsuccessful{} // the runner's lines say it
	}
	return nil
}

func scenarioResults(runs scenario.Results) lab.Results {
	results := lab.Results{}
	for _, run := range runs {
		name := fmt.Sprintf("scenario %s %s", run.Name, run.Family)
		switch run.Verdict {
		case scenario.Failed, scenario.Errored:
			results[name] = lab.Fail
		case scenario.Skipped:
			results[name] = lab.Skip
		default:
			results[name] = lab.Pass
		}
	}
	return results
}

func writeReport(g *lab.Guest, runs scenario.Results) error {
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return err
	}
	file, err := os.Create(filepath.Join(g.Dir, reportName))
	if err != nil {
		return err
	}
	defer file.Close()
	heading := scenario.Heading{Date: time.Now(), Proxy: g.ProxyName, Versions: []string{
		"kernel " + unix.ByteSliceToString(uname.Release[:]) + " (" + g.Kind + ")",
		"kube-apiserver " + g.Kubernetes,
	}}
	return runs.WriteReport(file, heading)
}

// copyReport puts the report where REPORT says.
func copyReport(h *lab.Host) error {
	to := os.Getenv("REPORT")
	if to == "" {
		return nil
	}
	text, err := os.ReadFile(filepath.Join(h.Dir, reportName))
	if err != nil {
		return err
	}
	return os.WriteFile(to, text, 0o644)
}
