package lab

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// The link between the box and the guest. RFC 6598 space, which no scenario uses.
var (
	boxAddress   = netip.MustParsePrefix("100.64.0.1/30")
	guestAddress = netip.MustParsePrefix("100.64.0.2/30")
)

// apiPort is where kube-apiserver listens in the box.
const apiPort = 6443

// box is process 1 of the box. When it ends the kernel ends everything that it started.
func box(dir string) error {
	s, err := readSpec(dir)
	if err != nil {
		return err
	}
	kind, err := guestKind(s.Guest.Kind)
	if err != nil {
		return err
	}
	if err := boxMounts(dir, s.Guest.Failures); err != nil {
		return err
	}
	if err := ipBatch(kind.boxLinks()...); err != nil {
		return fmt.Errorf("setting up the network of the box: %w", err)
	}
	ctx, cancel := context.WithCancelCause(context.Background())
	defer cancel(nil)
	if s.WithAPI {
		s.Guest.API, s.Guest.AdminToken, s.Guest.ProxyToken = kind.apiAddress(), adminToken, proxyToken
		if err := s.write(); err != nil {
			return err
		}
		if err := startAPI(dir, func(err error) { cancel(err) }); err != nil {
			return err
		}
	}
	if err := kind.run(ctx, dir); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return cause
		}
		return err
	}
	return nil
}

// boxMounts makes everything read-only but the run's own folder and the one for failures, and gives the box an empty
// /dev/shm: the guest's memory and etcd's data are there.
func boxMounts(dir, failures string) error {
	for _, m := range []struct {
		source, target, kind string
		flags                uintptr
	}{
		{"", "/", "", unix.MS_REC | unix.MS_PRIVATE},
		{"proc", "/proc", "proc", 0},
		{dir, dir, "", unix.MS_BIND},
		{failures, failures, "", unix.MS_BIND},
		{"", "/", "", unix.MS_REMOUNT | unix.MS_BIND | unix.MS_RDONLY},
		{"tmpfs", "/dev/shm", "tmpfs", 0},
	} {
		if err := unix.Mount(m.source, m.target, m.kind, m.flags, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.source, m.target, err)
		}
	}
	return nil
}

// ipBatch runs ip(8) once with these lines.
func ipBatch(lines ...string) error {
	cmd := exec.Command("ip", "-batch", "-")
	cmd.Stdin = strings.NewReader(strings.Join(lines, "\n") + "\n")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("ip -batch: %w: %s", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// background starts a program of the box whose output goes to dir/NAME.log. It reports an early end to failed.
func background(dir, name string, failed func(error), program string, args ...string) error {
	path := filepath.Join(dir, name+".log")
	log, err := os.Create(path)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(program, args...)
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", name, err)
	}
	go func() {
		err := cmd.Wait()
		failed(fmt.Errorf("%s ended: %v\n%s", name, err, tail(path, 20)))
	}()
	return nil
}

// tail returns the last lines of a file, for an error message.
func tail(path string, n int) string {
	data, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-n):], "\n")
}
