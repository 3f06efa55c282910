package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// qemu is the stock Debian kernel under software emulation: slower than User Mode Linux, but with two CPUs, nf_tables
// and the kernel that people run. Its root is the host's, read-only over 9p.
type qemu struct{}

// Names in the folder of the run.
const (
	qemuKernel = "vmlinuz"
	qemuInitrd = "initrd"
)

// qemuShares are the mount tags of the folders that the guest may write.
const (
	rootTag     = "root"
	dirTag      = "dir"
	failuresTag = "failures"
	repoTag     = "repo"
)

func (qemu) prepare(ctx context.Context, h *Host) error {
	if err := needProgram("qemu-system-x86_64", "qemu-system-x86"); err != nil {
		return err
	}
	kernel, err := h.debianKernel(ctx)
	if err != nil {
		return err
	}
	image, err := only(filepath.Join(kernel, "boot", "vmlinuz-*"))
	if err != nil {
		return err
	}
	if err := os.Symlink(image, filepath.Join(h.Dir, qemuKernel)); err != nil {
		return err
	}
	if err := os.Symlink(filepath.Join(kernel, "lib"), filepath.Join(h.Dir, "lib")); err != nil {
		return err
	}
	release := strings.TrimPrefix(filepath.Base(image), "vmlinuz-")
	return writeInitrd(filepath.Join(h.Dir, qemuInitrd), filepath.Join(h.Dir, "lab"), kernel, release)
}

// debianKernel unpacks the kernel package of this Debian release into the cache, without installing it.
func (h *Host) debianKernel(ctx context.Context) (string, error) {
	const script = `set -eu
pkg=$(apt-cache depends linux-image-$ARCH | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1)
[ -n "$pkg" ] || { apt-get update -qq; pkg=$(apt-cache depends linux-image-$ARCH | sed -n 's/.*Depends: \(linux-image-[0-9].*\)/\1/p' | head -n 1); }
kernel=$CACHE/kernel-${pkg#linux-image-}
if [ ! -d $kernel ]; then
  echo "lab: fetching $pkg" >&2
  tmp=$(mktemp -d $CACHE/fetch.XXXXXX); trap 'rm -rf $tmp' EXIT; cd $tmp
  apt-get download -qq -o APT::Sandbox::User=root $pkg >&2
  dpkg-deb -x linux-image-*.deb unpacked
  depmod -b unpacked ${pkg#linux-image-}
  mv unpacked $kernel
fi
echo $kernel`
	cmd := exec.CommandContext(ctx, "bash", "-c", script)
	cmd.Env = append(os.Environ(), "ARCH="+runtime.GOARCH, "CACHE="+h.Cache)
	cmd.Stderr = h.Progress
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("fetching Debian's kernel: %w", err)
	}
	return strings.TrimSpace(string(out)), nil
}

func (qemu) boxLinks() []string {
	return []string{"link set lo up", "addr add " + boxAddress.Addr().String() + "/32 dev lo"}
}

// apiAddress is QEMU's name for the loopback of where it runs, which is the box.
func (qemu) apiAddress() string { return fmt.Sprintf("10.0.2.2:%d", apiPort) }

func (qemu) run(ctx context.Context, dir string) error {
	s, err := readSpec(dir)
	if err != nil {
		return err
	}
	console := filepath.Join(dir, "console.log")
	args := []string{
		"-accel", "tcg,thread=multi", "-cpu", "max", "-smp", "2", "-m", "3G", "-no-reboot", "-nodefaults", "-display", "none",
		"-kernel", filepath.Join(dir, qemuKernel), "-initrd", filepath.Join(dir, qemuInitrd),
		"-serial", "file:" + console, "-chardev", "stdio,id=output,signal=off", "-serial", "chardev:output",
		"-netdev", "user,id=net", "-device", "virtio-net-pci,netdev=net",
		"-append", "console=ttyS0 panic=-1 quiet " + strings.Join(stageEnv("initrd", dir), " "),
	}
	for _, share := range []struct{ tag, path, mode string }{
		{rootTag, "/", ",readonly=on"}, {dirTag, dir, ""}, {failuresTag, s.Guest.Failures, ""}, {repoTag, s.Guest.Repo, ",readonly=on"},
	} {
		args = append(args,
			"-fsdev", "local,id="+share.tag+",path="+share.path+",security_model=none,multidevs=remap"+share.mode,
			"-device", "virtio-9p-pci,fsdev="+share.tag+",mount_tag="+share.tag)
	}
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", args...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	err = cmd.Run()
	if _, broken := readStatus(dir); broken != nil {
		return fmt.Errorf("qemu broke: %w (%v)\n%s", broken, err, tail(console, 40))
	}
	return nil
}

func (qemu) mounts(g Guest) error {
	if err := mountAll(guestMounts); err != nil {
		return err
	}
	if err := useTerminal("/dev/ttyS1"); err != nil {
		return err
	}
	for tag, dir := range map[string]string{dirTag: g.Dir, failuresTag: g.Failures, repoTag: g.Repo} {
		if tag == repoTag && !covered(dir) {
			continue // the root shows it
		}
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
		if err := mount9p(tag, dir, 0, "cache=mmap"); err != nil {
			return err
		}
	}
	return nil
}

func mount9p(tag, target string, flags uintptr, options string) error {
	options = "trans=virtio,version=9p2000.L,msize=262144," + options
	if err := unix.Mount(tag, target, "9p", flags, options); err != nil {
		return fmt.Errorf("mount %s on %s: %w", tag, target, err)
	}
	return nil
}

func (qemu) links() []string {
	return []string{"link set lo up", "addr add 10.0.2.15/24 dev eth0", "link set eth0 up"}
}

func (qemu) modules(dir string) []string { return []string{"-d", dir} }

func (qemu) powerOff() {
	unix.Sync()
	_ = unix.Reboot(unix.LINUX_REBOOT_CMD_POWER_OFF)
}

// only returns the one path that a pattern stands for.
func only(pattern string) (string, error) {
	paths, err := filepath.Glob(pattern)
	if err != nil {
		return "", err
	}
	if len(paths) != 1 {
		return "", errors.New(pattern + " stands for " + fmt.Sprint(paths))
	}
	return paths[0], nil
}
