package lab

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
)

// native is no guest: the job runs on the host's own kernel, inside the box and in namespaces that the lab makes.
type native struct{}

func (native) prepare(context.Context, *Host) error {
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return errors.New("LAB=native needs a kernel with ip_vs loaded; LAB=uml brings its own")
	}
	return nil
}

func (native) boxLinks() []string {
	return []string{"link set lo up", "addr add " + boxAddress.Addr().String() + "/32 dev lo"}
}

func (native) apiAddress() string { return boxAPI() }

// run starts the job's process in the box. There is nothing to boot.
func (native) run(ctx context.Context, dir string) error {
	s, err := readSpec(dir)
	if err != nil {
		return err
	}
	if err := mountAll([]mount{{"sysfs", "/sys"}, {"tmpfs", "/run"}}); err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "lab"))
	cmd.Env = append(jobEnv(s), stageEnv("job", dir)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		return err
	}
	return writeStatus(dir, cmd.ProcessState.ExitCode())
}

func (native) mounts(Guest) error      { return nil }
func (native) links() []string         { return nil }
func (native) modules(string) []string { return nil }
func (native) powerOff()               {}
