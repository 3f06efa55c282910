// Command lab boots a kernel that has IPVS and runs the project's kernel tests, scenarios and demonstration in it.
package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

func main() {
	results := lab.Results{}
	jobs := []lab.Job{contractJob(results), scenariosJob(results), demoJob(), runJob()}
	lab.Stage(jobs)
	ctx, stop := lab.Signals()
	status, err := command{jobs, results}.start(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "lab:", err)
		status = 1
	}
	os.Exit(status)
}

// command is the outer part, which the user started.
type command struct {
	jobs    []lab.Job
	results lab.Results
}

func (c command) start(ctx context.Context, args []string) (int, error) {
	if len(args) == 0 {
		c.usage()
		return 2, nil
	}
	switch args[0] {
	case "unit":
		return c.unit(ctx, args[1:])
	case "test":
		return c.test(ctx, args[1:])
	}
	for _, job := range c.jobs {
		if job.Name == args[0] {
			return c.inGuest(ctx, job, args[1:])
		}
	}
	c.usage()
	return 2, nil
}

func (c command) inGuest(ctx context.Context, job lab.Job, args []string) (int, error) {
	host, err := lab.NewHost()
	if err != nil {
		return 1, err
	}
	return host.Run(ctx, job, args)
}

func (c command) unit(ctx context.Context, packages []string) (int, error) {
	host, err := lab.NewHost()
	if err != nil {
		return 1, err
	}
	got, err := unit(ctx, host.Repo, packages...)
	c.results.Add(got)
	fmt.Println(got)
	return status(got), err
}

// test runs everything, goes on after a failure, and ends with the total.
func (c command) test(ctx context.Context, scenarios []string) (int, error) {
	total := 0
	var errs []error
	run := func(title string, part func() (int, error)) {
		if ctx.Err() != nil {
			return
		}
		fmt.Printf("--- %s\n", title)
		status, err := part()
		if err != nil {
			fmt.Fprintf(os.Stderr, "lab: %s: %v\n", title, err)
		}
		errs = append(errs, err)
		total = max(total, status)
	}
	run("unit", func() (int, error) { return c.unit(ctx, nil) })
	for _, job := range c.jobs {
		switch job.Name {
		case "contract":
			run(job.Name, func() (int, error) { return c.inGuest(ctx, job, nil) })
		case "scenarios":
			run(job.Name, func() (int, error) { return c.inTwoGuests(ctx, scenarios) })
		}
	}
	if errors.Join(errs...) != nil || ctx.Err() != nil {
		c.results["lab"] = lab.Fail
		total = 1
	}
	fmt.Printf("--- total\n%s\n", c.results)
	return max(total, status(c.results)), nil
}

// inTwoGuests runs scenario files in two guests at once, every other file in each: a guest has one CPU and spends
// much of its time waiting.
func (c command) inTwoGuests(ctx context.Context, paths []string) (int, error) {
	files, err := scenario.Find(paths...)
	if err != nil {
		return 1, err
	}
	var halves [2][]string
	for i, file := range files {
		halves[i%2] = append(halves[i%2], file)
	}
	var guests sync.WaitGroup
	var results [2]lab.Results
	var statuses [2]int
	var errs [2]error
	for i, half := range halves {
		if len(half) == 0 {
			continue
		}
		results[i] = lab.Results{}
		guests.Go(func() { statuses[i], errs[i] = c.inGuest(ctx, scenariosJob(results[i]), half) })
	}
	guests.Wait()
	for _, got := range results {
		c.results.Add(got)
	}
	return max(statuses[0], statuses[1]), errors.Join(errs[:]...)
}

func status(results lab.Results) int {
	if results.OK() {
		return 0
	}
	return 1
}

func (c command) usage() {
	fmt.Fprintln(os.Stderr, "usage: lab JOB [argument ...]")
	line := func(name, summary string) { fmt.Fprintf(os.Stderr, "  %-10s %s\n", name, summary) }
	line("test", "unit, contract and scenarios, with a total: test PATH ...")
	line("unit", "go test on this machine, with a total: unit [PACKAGE ...]")
	for _, job := range c.jobs {
		line(job.Name, job.Summary)
	}
	fmt.Fprintln(os.Stderr, `environment:
  LAB=uml|qemu|native          the guest
  PROXY=kube-ipvs|kube-proxy   the proxy under test, or the path of its binary
  SLOW=3                       multiplies the times in scenarios, except max
  REPORT=FILE                  gets a Markdown table of the scenarios
  KUBE_IPVS_LAB_CACHE=DIR      where what is built once is kept`)
}
