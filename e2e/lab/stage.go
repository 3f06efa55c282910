package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
)

// Words of the environment that tell the program which part it takes.
const (
	stageVariable = "LAB_STAGE"
	dirVariable   = "LAB_DIR"
)

// Stage takes the inner part that the environment names and does not return then. It returns when this process is
// the outer one, which the user started.
func Stage(jobs []Job) {
	// The first thread stands for the whole process in /proc and must never be one that enters a namespace.
	runtime.LockOSThread()
	stage, dir := os.Getenv(stageVariable), os.Getenv(dirVariable)
	os.Unsetenv(stageVariable)
	os.Unsetenv(dirVariable)
	var err error
	switch stage {
	case "":
		return
	case "box":
		err = box(dir)
	case "initrd":
		err = initrd(dir)
	case "init":
		err = guestInit(dir)
	case "job":
		err = guestJob(context.Background(), dir, jobs)
	default:
		err = fmt.Errorf("no stage is called %q", stage)
	}
	if err == nil {
		os.Exit(0)
	}
	if !errors.As(err, &Unsuccessful{}) {
		fmt.Fprintf(os.Stderr, "lab: %s: %v\n", stage, err)
	}
	os.Exit(1)
}

// The job's exit status reaches the host as a file.

func writeStatus(dir string, status int) error {
	return os.WriteFile(filepath.Join(dir, "status"), []byte(strconv.Itoa(status)), 0o644)
}

func readStatus(dir string) (int, error) {
	data, err := os.ReadFile(filepath.Join(dir, "status"))
	if err != nil {
		return 0, fmt.Errorf("the guest ended before its job did: %w", err)
	}
	return strconv.Atoi(strings.TrimSpace(string(data)))
}
