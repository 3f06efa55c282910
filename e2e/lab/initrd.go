package lab

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// rootModules bring the kernel to its root file system.
var rootModules = []string{"virtio_pci", "9pnet_virtio", "9p"}

// writeInitrd writes a cpio archive (the kernel's Documentation/driver-api/early-userspace/buffer-format.rst) of this
// program as init and the modules for the root file system, numbered in the order in which they are loaded.
func writeInitrd(path, self, kernel, release string) error {
	var archive bytes.Buffer
	for _, dir := range []string{"dev", "proc", "root", "modules"} {
		cpioEntry(&archive, dir, 0o40755, nil)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		return err
	}
	cpioEntry(&archive, "init", 0o100755, program)
	files, err := moduleFiles(kernel, release)
	if err != nil {
		return err
	}
	for i, file := range files {
		module, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		cpioEntry(&archive, fmt.Sprintf("modules/%02d-%s", i, filepath.Base(file)), 0o100644, module)
	}
	cpioEntry(&archive, "TRAILER!!!", 0, nil)
	return os.WriteFile(path, archive.Bytes(), 0o644)
}

// cpioEntry appends a file or folder in the format called newc.
func cpioEntry(archive *bytes.Buffer, name string, mode int, data []byte) {
	pad := func() {
		for archive.Len()%4 != 0 {
			archive.WriteByte(0)
		}
	}
	// inode, mode, uid, gid, links, mtime, size, device and special device, length of the name, checksum
	fields := []int{archive.Len() + 1, mode, 0, 0, 1, 0, len(data), 0, 0, 0, 0, len(name) + 1, 0}
	archive.WriteString("070701")
	for _, f := range fields {
		fmt.Fprintf(archive, "%08X", f)
	}
	archive.WriteString(name + "\x00")
	pad()
	archive.Write(data)
	pad()
}

// moduleFiles lists the files of rootModules and of what they need, in loading order.
func moduleFiles(kernel, release string) ([]string, error) {
	var files []string
	seen := map[string]bool{}
	for _, module := range rootModules {
		out, err := exec.Command("modprobe", "-d", kernel, "-S", release, "--show-depends", module).Output()
		if err != nil {
			return nil, fmt.Errorf("finding module %s: %w", module, err)
		}
		for line := range strings.Lines(string(out)) {
			file, found := strings.CutPrefix(strings.TrimSpace(line), "insmod ")
			if found && !seen[file] {
				seen[file] = true
				files = append(files, file)
			}
		}
	}
	return files, nil
}

// initrd is the first process of a guest that boots from the archive: it mounts the root and hands over to its init.
func initrd(dir string) error {
	for _, m := range []mount{{"proc", "/proc"}, {"devtmpfs", "/dev"}} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil && err != unix.EBUSY {
			return fmt.Errorf("mount %s: %w", m.kind, err)
		}
	}
	files, err := os.ReadDir("/modules") // sorted
	if err != nil {
		return err
	}
	for _, file := range files {
		if err := insertModule("/modules/" + file.Name()); err != nil {
			return err
		}
	}
	if err := mount9p(rootTag, "/root", unix.MS_RDONLY, "cache=loose"); err != nil {
		return err
	}
	if err := errors.Join(unix.Chdir("/root"), unix.Mount(".", "/", "", unix.MS_MOVE, ""), unix.Chroot("."), unix.Chdir("/")); err != nil {
		return fmt.Errorf("switching to the root: %w", err)
	}
	self := filepath.Join(dir, "lab")
	return unix.Exec(self, []string{self}, append(os.Environ(), stageEnv("init", dir)...))
}

func insertModule(path string) error {
	file, err := os.Open(path)
	if err != nil {
		return err
	}
	defer file.Close()
	flags := 0
	if !strings.HasSuffix(path, ".ko") {
		flags = unix.MODULE_INIT_COMPRESSED_FILE
	}
	if err := unix.FinitModule(int(file.Fd()), "", flags); err != nil && err != unix.EEXIST {
		return fmt.Errorf("load %s: %w", path, err)
	}
	return nil
}
