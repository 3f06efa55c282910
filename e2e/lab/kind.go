package lab

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
)

// kind is a sort of guest.
type kind interface {
	// prepare runs on the host: it says what is missing and puts what the guest needs into h.Dir.
	prepare(ctx context.Context, h *Host) error
	// boxLinks are the lines for ip(8) that connect the box with the guest.
	boxLinks() []string
	// apiAddress is the API server's address in the eyes of the guest.
	apiAddress() string
	// run boots the guest from inside the box and waits until it has powered off.
	run(ctx context.Context, dir string) error
	// mounts makes the guest's file systems, from inside it, and the output of this process.
	mounts(g Guest) error
	// links are the lines for ip(8) that connect the guest with the box, from inside it.
	links() []string
	// modules returns the arguments of modprobe(8) that make it find the guest kernel's modules.
	modules(dir string) []string
	// powerOff ends the guest from inside.
	powerOff()
}

func guestKind(name string) (kind, error) {
	switch name {
	case "uml":
		return uml{}, nil
	case "qemu":
		return qemu{}, nil
	case "native":
		return native{}, nil
	}
	return nil, fmt.Errorf("LAB is %q; it must be uml, qemu or native", name)
}

// needProgram says which package brings a program that is missing.
func needProgram(program, pkg string) error {
	if _, err := exec.LookPath(program); err != nil {
		return fmt.Errorf("%s is missing; install %s (make deps)", program, pkg)
	}
	return nil
}

func boxAPI() string {
	return net.JoinHostPort(boxAddress.Addr().String(), strconv.Itoa(apiPort))
}

// covered says whether a guest's own /tmp or /run hides a folder of the host.
func covered(path string) bool {
	return strings.HasPrefix(path, "/tmp/") || strings.HasPrefix(path, "/run/")
}

// stageEnv is the environment that makes this program take a part.
func stageEnv(stage, dir string) []string {
	return []string{stageVariable + "=" + stage, dirVariable + "=" + dir}
}

// linkLegacyIptables puts the legacy variant of iptables first on the job's PATH, for kernels without nf_tables.
func linkLegacyIptables(dir string) error {
	bin := filepath.Join(dir, "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		return err
	}
	for _, family := range []string{"iptables", "ip6tables"} {
		for _, tool := range []string{"", "-save", "-restore"} {
			if err := os.Symlink("/usr/sbin/xtables-legacy-multi", filepath.Join(bin, family+tool)); err != nil {
				return err
			}
		}
	}
	return nil
}
