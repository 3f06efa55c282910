package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// guestPath is the job's PATH after the folder of replaced programs.
const guestPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

// guestInit is process 1 of the guest: it makes a working system, runs the job in a child, and powers off.
func guestInit(dir string) error {
	s, err := readSpec(dir)
	if err != nil {
		return err
	}
	kind, err := guestKind(s.Guest.Kind)
	if err != nil {
		return err
	}
	defer kind.powerOff()
	status := 1
	if err := guestSystem(kind, s.Guest); err != nil {
		fmt.Fprintln(os.Stderr, "lab: booting the guest:", err)
	} else if status, err = runAsInit(s); err != nil {
		fmt.Fprintln(os.Stderr, "lab: starting the job:", err)
	}
	return writeStatus(dir, status)
}

// guestSystem does what the init of a distribution would do.
func guestSystem(kind kind, g Guest) error {
	os.Setenv("PATH", filepath.Join(g.Dir, "bin")+":"+guestPath)
	if err := kind.mounts(g); err != nil {
		return err
	}
	if err := loadModules(kind, g.Dir); err != nil {
		return err
	}
	if err := unix.Sethostname([]byte("lab")); err != nil {
		return err
	}
	return ipBatch(kind.links()...)
}

type mount struct{ kind, target string }

// guestMounts are the file systems of a guest. The kernel may have mounted /dev by itself.
var guestMounts = []mount{
	{"proc", "/proc"}, {"sysfs", "/sys"}, {"tmpfs", "/tmp"}, {"tmpfs", "/run"}, {"devtmpfs", "/dev"},
	{"devpts", "/dev/pts"}, {"tmpfs", "/dev/shm"},
}

func mountAll(mounts []mount) error {
	for _, m := range mounts {
		if err := os.MkdirAll(m.target, 0o755); err != nil {
			return err
		}
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return nil
}

// useTerminal makes a terminal this process's output and stops it from writing a carriage return before each line feed.
func useTerminal(path string) error {
	fd, err := unix.Open(path, unix.O_WRONLY|unix.O_NOCTTY, 0)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	t, err := unix.IoctlGetTermios(fd, unix.TCGETS)
	if err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	t.Oflag &^= unix.OPOST
	if err := unix.IoctlSetTermios(fd, unix.TCSETS, t); err != nil {
		return fmt.Errorf("%s: %w", path, err)
	}
	for _, output := range []int{1, 2} {
		if err := unix.Dup2(fd, output); err != nil {
			return err
		}
	}
	return unix.Close(fd)
}

// runAsInit starts the job and reaps whatever is left to process 1 until the job has ended.
func runAsInit(s spec) (int, error) {
	self, err := os.Executable()
	if err != nil {
		return 1, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		return 1, err
	}
	env := append(jobEnv(s), stageEnv("job", s.Guest.Dir)...)
	pid, err := syscall.ForkExec(self, []string{"lab"}, &syscall.ProcAttr{
		Dir: "/", Env: env, Files: []uintptr{null.Fd(), 1, 2}, Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		return 1, err
	}
	for {
		var status unix.WaitStatus
		ended, err := unix.Wait4(-1, &status, 0, nil)
		if err == unix.EINTR {
			continue
		}
		if err != nil {
			return 1, err
		}
		if ended == pid && status.Signaled() {
			return 128 + int(status.Signal()), nil
		}
		if ended == pid {
			return status.ExitStatus(), nil
		}
	}
}

// jobEnv is the host's environment with the guest's PATH.
func jobEnv(s spec) []string {
	env := []string{"PATH=" + os.Getenv("PATH")}
	for _, kv := range s.Env {
		name, _, _ := strings.Cut(kv, "=")
		if name != "PATH" && name != "TMPDIR" && name != "PWD" {
			env = append(env, kv)
		}
	}
	return env
}

// guestJob runs the job that the host asked for.
func guestJob(ctx context.Context, dir string, jobs []Job) error {
	s, err := readSpec(dir)
	if err != nil {
		return err
	}
	// A folder that the guest does not show is no reason to fail.
	_ = os.Chdir(s.Work)
	for _, job := range jobs {
		if job.Name != s.Job {
			continue
		}
		err := job.Run(ctx, &s.Guest, s.Args)
		var exit *exec.ExitError
		if errors.As(err, &exit) {
			os.Exit(exit.ExitCode())
		}
		return err
	}
	return fmt.Errorf("no job is called %q", s.Job)
}
