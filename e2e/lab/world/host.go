package world

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
)

// host is one host of the topology.
type host struct{ space *netns.Space }

func (h host) Name() string { return h.space.Name }

func (h host) Do(fn func() error) error { return h.space.Do(fn) }

// Command runs a line with bash. What the line leaves in the background goes on and is ended with the world.
func (h host) Command(ctx context.Context, line string) (string, int, error) {
	return runIn(ctx, h.space, exec.CommandContext(ctx, "/bin/bash", "-c", line))
}

// runIn runs a command in a host's namespaces. Its output goes to a file in memory and not to a pipe, so that a
// background process that keeps it open is not waited for.
func runIn(ctx context.Context, space *netns.Space, cmd *exec.Cmd) (string, int, error) {
	output, err := memoryFile()
	if err != nil {
		return "", 0, err
	}
	defer output.Close()
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	if err := space.Do(cmd.Start); err != nil {
		return "", 0, fmt.Errorf("starting %s on %s: %w", cmd.Path, space.Name, err)
	}
	err = cmd.Wait()
	text, readErr := readAll(output)
	if ctx.Err() != nil {
		return text, 0, ctx.Err()
	}
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return text, 0, err
	}
	return text, exitStatus(cmd.ProcessState), readErr
}

// exitStatus is that of a shell: 128 and the signal for a process that a signal ended.
func exitStatus(state *os.ProcessState) int {
	if status, ok := state.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}

func memoryFile() (*os.File, error) {
	fd, err := unix.MemfdCreate("output", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), "output"), nil
}

func readAll(f *os.File) (string, error) {
	if _, err := f.Seek(0, io.SeekStart); err != nil {
		return "", err
	}
	data, err := io.ReadAll(f)
	return string(data), err
}

func killGroup(pid int) error {
	err := unix.Kill(-pid, unix.SIGKILL)
	if err == unix.ESRCH {
		return os.ErrProcessDone
	}
	return err
}

// killAll ends every process in the spaces and returns when they are gone.
func killAll(ctx context.Context, spaces map[string]*netns.Space) error {
	return await(ctx, 10*time.Second, func() error {
		pids, err := netns.Processes(spaces)
		if err != nil || len(pids) == 0 {
			return err
		}
		for _, pid := range pids {
			if err := unix.Kill(pid, unix.SIGKILL); err != nil && err != unix.ESRCH {
				return err
			}
		}
		slices.Sort(pids)
		return fmt.Errorf("processes %v do not end", pids)
	})
}
