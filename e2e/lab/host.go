package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"syscall"

	"golang.org/x/sys/unix"
)

// Host is the outer part of the lab.
type Host struct {
	// Kind is the sort of guest: uml (the default), qemu or native.
	Kind string
	// Repo is the project's folder, where go.mod is.
	Repo string
	// Cache keeps what is built once.
	Cache string
	// ProxyName is the proxy under test: kube-ipvs, kube-proxy, or the path of a binary.
	ProxyName string
	// Progress gets one line for each thing that takes long.
	Progress io.Writer
	// Dir is this run's own folder in the cache, which the guest sees under the same path.
	Dir string

	// Failures keeps what the guest writes about failures.
	Failures string

	proxy string
	lock  *os.File
}

// NewHost reads the environment: LAB, PROXY and KUBE_IPVS_LAB_CACHE.
func NewHost() (*Host, error) {
	repo, err := findRepo()
	if err != nil {
		return nil, err
	}
	h := &Host{Kind: envOr("LAB", "uml"), ProxyName: envOr("PROXY", "kube-ipvs"), Repo: repo, Progress: os.Stderr}
	if h.Cache = os.Getenv("KUBE_IPVS_LAB_CACHE"); h.Cache == "" {
		base, err := os.UserCacheDir()
		if err != nil { // no HOME
			base = "/var/cache"
		}
		h.Cache = filepath.Join(base, "kube-ipvs-lab")
	}
	if h.Cache, err = filepath.Abs(h.Cache); err != nil {
		return nil, err
	}
	return h, nil
}

// Run does the job in a guest and returns the job's exit status. It ends the guest when ctx does.
func (h *Host) Run(ctx context.Context, job Job, args []string) (int, error) {
	if os.Geteuid() != 0 {
		return 0, errors.New("the lab makes network namespaces and needs root")
	}
	kind, err := guestKind(h.Kind)
	if err != nil {
		return 0, err
	}
	if err := h.openDir(); err != nil {
		return 0, err
	}
	defer h.closeDir()
	if err := h.prepare(ctx, kind, job); err != nil {
		return 0, err
	}
	if job.Prepare != nil {
		if args, err = job.Prepare(ctx, h, args); err != nil {
			return 0, err
		}
	}
	if err := h.spec(job, args).write(); err != nil {
		return 0, err
	}
	if err := h.runBox(ctx); err != nil {
		return 0, err
	}
	status, err := readStatus(h.Dir)
	if err == nil && job.Finish != nil {
		err = job.Finish(h)
	}
	return status, err
}

// prepare copies this program to where the guest sees it, and builds what the job needs.
func (h *Host) prepare(ctx context.Context, kind kind, job Job) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	if err := copyFile(self, filepath.Join(h.Dir, "lab"), 0o755); err != nil {
		return err
	}
	if job.API {
		if err := needProgram("etcd", "etcd-server"); err != nil {
			return err
		}
	}
	if job.API || job.Proxy && h.ProxyName == "kube-proxy" {
		if err := h.buildTools(ctx); err != nil {
			return err
		}
	}
	if job.Proxy {
		if err := h.buildProxy(ctx); err != nil {
			return err
		}
	}
	return kind.prepare(ctx, h)
}

func (h *Host) spec(job Job, args []string) spec {
	work, err := os.Getwd()
	if err != nil {
		work = "/"
	}
	return spec{
		Guest: Guest{
			Kind: h.Kind, Dir: h.Dir, Failures: h.Failures, Repo: h.Repo,
			Proxy: h.proxy, ProxyName: filepath.Base(h.ProxyName), Kubernetes: h.kubernetesVersion(),
		},
		Job: job.Name, Args: args, WithAPI: job.API, Work: work, Env: os.Environ(),
	}
}

// runBox starts the box and waits for it. Killing its first process ends all others.
func (h *Host) runBox(ctx context.Context) error {
	runtime.LockOSThread() // Pdeathsig means the thread
	defer runtime.UnlockOSThread()
	cmd := exec.CommandContext(ctx, filepath.Join(h.Dir, "lab"))
	cmd.Env = append(os.Environ(), stageVariable+"=box", dirVariable+"="+h.Dir)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{
		Cloneflags: unix.CLONE_NEWPID | unix.CLONE_NEWNET | unix.CLONE_NEWNS | unix.CLONE_NEWIPC,
		Pdeathsig:  syscall.SIGKILL,
		Setpgid:    true, // a key press ends it through us, not at the same moment
	}
	err := cmd.Run()
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return fmt.Errorf("the lab broke: %w", err)
	}
	return err
}

// openDir makes this run's folder and sweeps those that killed runs left.
func (h *Host) openDir() error {
	runs := filepath.Join(h.Cache, "runs")
	if err := os.MkdirAll(runs, 0o755); err != nil {
		return err
	}
	sweep(runs)
	dir, err := os.MkdirTemp(runs, "")
	if err != nil {
		return err
	}
	h.Dir = dir
	if h.lock, err = lockFile(filepath.Join(dir, "lock"), unix.LOCK_EX); err != nil {
		return err
	}
	h.Failures = filepath.Join(h.Repo, "e2e", "failures", filepath.Base(dir))
	return os.MkdirAll(h.Failures, 0o755)
}

func (h *Host) closeDir() {
	// What is left here is swept by the next run; the folder of failures goes only if it is empty.
	_ = os.RemoveAll(h.Dir)
	_ = os.Remove(h.Failures)
	_ = h.lock.Close()
}

func sweep(runs string) {
	entries, err := os.ReadDir(runs)
	if err != nil {
		return
	}
	for _, e := range entries {
		dir := filepath.Join(runs, e.Name())
		lock, err := lockFile(filepath.Join(dir, "lock"), unix.LOCK_EX|unix.LOCK_NB)
		if err != nil {
			continue
		}
		_ = os.RemoveAll(dir)
		_ = lock.Close()
	}
}

// lockFile takes an advisory lock that ends with the process.
func lockFile(path string, how int) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return nil, err
	}
	if err := unix.Flock(int(f.Fd()), how); err != nil {
		f.Close()
		return nil, fmt.Errorf("lock %s: %w", path, err)
	}
	return f, nil
}

// Signals returns a context that ends at SIGINT or SIGTERM, and when `go run` does, which forwards nothing.
func Signals() (context.Context, context.CancelFunc) {
	parent, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", os.Getppid()))
	if err == nil && string(parent) == "go\n" {
		// Failing means an old kernel, where an orphan ends with its job instead.
		_ = unix.Prctl(unix.PR_SET_PDEATHSIG, uintptr(unix.SIGTERM), 0, 0, 0)
	}
	return signal.NotifyContext(context.Background(), unix.SIGINT, unix.SIGTERM)
}

func findRepo() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "e2e", "tools", "go.mod")); err == nil {
			return dir, nil
		}
		parent := filepath.Dir(dir)
		if parent == dir {
			return "", errors.New("the lab is started from a folder of the project")
		}
		dir = parent
	}
}

func envOr(name, otherwise string) string {
	if v := os.Getenv(name); v != "" {
		return v
	}
	return otherwise
}

func copyFile(from, to string, mode os.FileMode) error {
	in, err := os.Open(from)
	if err != nil {
		return err
	}
	defer in.Close()
	out, err := os.OpenFile(to, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(out, in); err != nil {
		out.Close()
		return fmt.Errorf("copy %s to %s: %w", from, to, err)
	}
	return out.Close()
}
