// Package sysctl brings kernel settings under /proc/sys to the values that
// IPVS needs. It reads before it writes, so that a node which is set up right
// may have /proc/sys read-only, and it reports what it changed.
package sysctl

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Setting is a kernel setting and the value it shall have.
type Setting struct {
	// Key is the name as sysctl(8) writes it, such as net.ipv4.vs.conntrack.
	Key   string
	Value int
	// AtLeast accepts a greater value.
	AtLeast bool
	// Optional accepts a kernel that has no such setting.
	Optional bool
}

// Changed is a setting that was changed.
type Changed struct {
	Key      string
	Old, New int
}

// String returns the change as the command for it.
func (c Changed) String() string { return fmt.Sprintf("sysctl -w %s=%d", c.Key, c.New) }

// Ensure gives each setting its value and returns those it changed. The root
// is the directory of the kernel's settings, /proc/sys. It goes on after an
// error and returns all of them.
func Ensure(root string, settings []Setting) ([]Changed, error) {
	var (
		changes []Changed
		errs    []error
	)
	for _, s := range settings {
		old, err := read(root, s.Key)
		switch {
		case err == nil && s.holds(old):
		case err == nil:
			if err := write(root, s, old); err != nil {
				errs = append(errs, err)
				continue
			}
			changes = append(changes, Changed{s.Key, old, s.Value})
		case errors.Is(err, fs.ErrNotExist) && s.Optional:
		case errors.Is(err, fs.ErrNotExist):
			errs = append(errs, absent(s))
		default:
			errs = append(errs, fmt.Errorf("reading the setting %s: %w", s.Key, err))
		}
	}
	return changes, errors.Join(errs...)
}

// Restore gives settings their old values back, for cleaning up. A setting
// that somebody changed meanwhile is left alone.
func Restore(root string, changes []Changed) error {
	var errs []error
	for _, c := range changes {
		now, err := read(root, c.Key)
		if errors.Is(err, fs.ErrNotExist) || err == nil && now != c.New {
			continue
		}
		if err == nil {
			err = write(root, Setting{Key: c.Key, Value: c.Old}, now)
		}
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

func (s Setting) holds(value int) bool {
	return value == s.Value || s.AtLeast && value > s.Value
}

// path returns a setting's file. Of a key such as
// net.ipv4.conf.eth0/100.arp_ignore the slash stands for a dot in a device's
// name, as sysctl(8) has it.
func path(root, key string) string {
	swap := strings.NewReplacer(".", "/", "/", ".")
	return filepath.Join(root, swap.Replace(key))
}

func read(root, key string) (int, error) {
	text, err := os.ReadFile(path(root, key))
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(strings.TrimSpace(string(text)))
}

// write sets a value. It never makes a file: /proc/sys has all there are.
func write(root string, s Setting, old int) error {
	file, err := os.OpenFile(path(root, s.Key), os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString(strconv.Itoa(s.Value))
		err = errors.Join(err, file.Close())
	}
	if err != nil {
		return fmt.Errorf("%s is %d and must be %d, but it cannot be set here: let a privileged init container set it, "+
			"or the node itself with a line \"%s = %d\" in /etc/sysctl.d: %w", s.Key, old, s.Value, s.Key, s.Value, err)
	}
	return nil
}

// absent is the error for a setting that the kernel does not have.
func absent(s Setting) error {
	module := "the kernel does not have it"
	if strings.HasPrefix(s.Key, "net.ipv4.vs.") {
		module = "load the kernel module ip_vs"
	}
	return fmt.Errorf("there is no setting %s (it must be %d): %s", s.Key, s.Value, module)
}
