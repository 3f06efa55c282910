package lab

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// toolPackages are the programs of the tools module.
var toolPackages = []string{"kube-apiserver", "kube-proxy"}

// tool returns the path of a program that the tools module builds.
func (h *Host) tool(name string) (string, error) {
	key, err := h.toolsKey()
	if err != nil {
		return "", err
	}
	return filepath.Join(h.Cache, "tools-"+key, name), nil
}

// toolsKey names the versions of the tools and of Go.
func (h *Host) toolsKey() (string, error) {
	sum := sha256.New()
	for _, name := range []string{"go.mod", "go.sum"} {
		data, err := os.ReadFile(filepath.Join(h.Repo, "e2e", "tools", name))
		if err != nil {
			return "", err
		}
		sum.Write(data)
	}
	version, err := exec.Command("go", "env", "GOVERSION", "GOARCH").Output()
	if err != nil {
		return "", fmt.Errorf("asking go for its version: %w", err)
	}
	sum.Write(version)
	return hex.EncodeToString(sum.Sum(nil))[:12], nil
}

// kubernetesVersion is that of the tools module, such as v1.37.2.
func (h *Host) kubernetesVersion() string {
	data, err := os.ReadFile(filepath.Join(h.Repo, "e2e", "tools", "go.mod"))
	if err != nil {
		return "unknown"
	}
	for line := range strings.Lines(string(data)) {
		if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "k8s.io/kubernetes" {
			return fields[1]
		}
	}
	return "unknown"
}

// buildTools builds kube-apiserver and kube-proxy unless the cache has them, and links them into the run's folder.
func (h *Host) buildTools(ctx context.Context) error {
	lock, err := lockFile(filepath.Join(h.Cache, "tools.lock"), unix.LOCK_EX)
	if err != nil {
		return err
	}
	defer lock.Close()
	for _, name := range toolPackages {
		binary, err := h.tool(name)
		if err != nil {
			return err
		}
		if _, err := os.Stat(binary); err != nil {
			fmt.Fprintf(h.Progress, "lab: %s is built once, which takes some minutes\n", name)
			dir := filepath.Join(h.Repo, "e2e", "tools")
			if err := h.goBuild(ctx, dir, binary, "build", "k8s.io/kubernetes/cmd/"+name); err != nil {
				return err
			}
		}
		if err := os.Symlink(binary, filepath.Join(h.Dir, name)); err != nil {
			return err
		}
	}
	return nil
}

// buildProxy builds or finds the proxy under test and sets h.proxy to where the guest finds it.
func (h *Host) buildProxy(ctx context.Context) error {
	switch h.ProxyName {
	case "kube-proxy":
		h.proxy = filepath.Join(h.Dir, "kube-proxy")
		return nil
	case "kube-ipvs":
		h.proxy = filepath.Join(h.Dir, "kube-ipvs")
		return h.goBuild(ctx, h.Repo, h.proxy, "build", "./cmd/kube-ipvs")
	}
	h.proxy = filepath.Join(h.Dir, filepath.Base(h.ProxyName))
	return copyFile(h.ProxyName, h.proxy, 0o755)
}

// BuildTest builds the test binary of a package of the project, and says how to find it in the guest. A package
// without tests gives no binary and an empty path.
func (h *Host) BuildTest(ctx context.Context, pkg string) (string, error) {
	binary := filepath.Join(h.Dir, strings.ReplaceAll(strings.Trim(pkg, "./"), "/", "-")+".test")
	if err := h.goBuild(ctx, h.Repo, binary, "test", "-c", pkg); err != nil {
		return "", err
	}
	if _, err := os.Stat(binary); os.IsNotExist(err) {
		return "", nil
	}
	return binary, nil
}

// goBuild runs go build or go test -c in dir, static and without the version control stamp, with its result in output.
// It reports what took longer than a moment.
func (h *Host) goBuild(ctx context.Context, dir, output string, args ...string) error {
	if err := os.MkdirAll(filepath.Dir(output), 0o755); err != nil {
		return err
	}
	what := filepath.Base(output)
	start := time.Now()
	slow := time.AfterFunc(3*time.Second, func() {
		fmt.Fprintf(h.Progress, "lab: building %s\n", what)
	})
	defer slow.Stop()
	partial := output + ".partial"
	last := args[len(args)-1]
	args = append(append(args[:len(args)-1:len(args)-1], "-buildvcs=false", "-o", partial), last)
	cmd := exec.CommandContext(ctx, "go", args...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0", "GOFLAGS=", "GOWORK=off")
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 5 * time.Second
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &out
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("building %s: %w\n%s", what, err, out.String())
	}
	if d := time.Since(start); d > 3*time.Second {
		fmt.Fprintf(h.Progress, "lab: built %s in %.0f s\n", what, d.Seconds())
	}
	if err := os.Rename(partial, output); err != nil && !os.IsNotExist(err) {
		return err
	}
	return nil
}
