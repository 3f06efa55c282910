package lab

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// uml is User Mode Linux: a kernel that is a program, whose root is the host's own file system.
type uml struct{}

const umlModules = "/usr/lib/uml/modules"

func (uml) prepare(_ context.Context, h *Host) error {
	if err := needProgram("linux.uml", "user-mode-linux"); err != nil {
		return err
	}
	if _, err := os.Stat("/dev/net/tun"); err != nil {
		return fmt.Errorf("the guest's network needs the tun module: %w", err)
	}
	// modprobe -d DIR looks into DIR/lib/modules.
	if err := os.MkdirAll(filepath.Join(h.Dir, "lib"), 0o755); err != nil {
		return err
	}
	if err := os.Symlink(umlModules, filepath.Join(h.Dir, "lib", "modules")); err != nil {
		return err
	}
	return linkLegacyIptables(h.Dir)
}

func (uml) boxLinks() []string {
	return []string{
		"link set lo up",
		"tuntap add dev tap0 mode tap",
		"addr add " + boxAddress.String() + " dev tap0",
		"link set tap0 up",
	}
}

func (uml) apiAddress() string { return boxAPI() }

// run gives the guest two terminals: the kernel's console, which is shown if the guest breaks, and the job's output.
func (uml) run(ctx context.Context, dir string) error {
	console := filepath.Join(dir, "console.log")
	log, err := os.Create(console)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, "linux.uml",
		"mem=4G", // a bound, not a reservation
		"rootfstype=hostfs", "rootflags=/", "rw", "init="+filepath.Join(dir, "lab"),
		stageVariable+"=init", dirVariable+"="+dir,
		"vec0:transport=tap,ifname=tap0,depth=128,gro=1",
		"uml_dir="+filepath.Join(dir, "uml"), "con=null", "con0=null,fd:1", "con1=null,fd:3", "panic=-1")
	cmd.Stdout, cmd.Stderr, cmd.ExtraFiles = log, log, []*os.File{os.Stdout}
	err = cmd.Run()
	if _, broken := readStatus(dir); broken != nil {
		return fmt.Errorf("user-mode-linux broke: %w (%v)\n%s", broken, err, tail(console, 40))
	}
	return nil
}

func (uml) mounts(g Guest) error {
	if err := mountAll(guestMounts); err != nil {
		return err
	}
	if err := useTerminal("/dev/tty1"); err != nil {
		return err
	}
	for _, dir := range []string{g.Dir, g.Failures, g.Repo} {
		if !covered(dir) {
			continue
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := unix.Mount("none", dir, "hostfs", 0, dir); err != nil {
			return fmt.Errorf("mount the host's %s: %w", dir, err)
		}
	}
	return nil
}

func (uml) links() []string {
	return []string{"link set lo up", "addr add " + guestAddress.String() + " dev vec0", "link set vec0 up"}
}

func (uml) modules(dir string) []string { return []string{"-d", dir} }

func (uml) powerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}
