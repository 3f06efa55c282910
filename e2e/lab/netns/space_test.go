package netns

import (
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"golang.org/x/sys/unix"
)

func newSpace(t *testing.T, keep ...string) *Space {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	s, err := New(t.TempDir(), "host", keep...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(s.Close)
	return s
}

func TestSpaceHasItsOwnDevices(t *testing.T) {
	s := newSpace(t)
	var links []net.Interface
	err := s.Do(func() (err error) {
		links, err = net.Interfaces()
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var up []string
	for _, l := range links {
		if l.Flags&net.FlagUp != 0 {
			up = append(up, l.Name)
		}
	}
	if !slices.Equal(up, []string{"lo"}) {
		t.Errorf("a new namespace has %v up, want lo alone", up)
	}
}

func TestSpaceHasItsOwnRun(t *testing.T) {
	kept := t.TempDir() // under /tmp
	if err := os.WriteFile(filepath.Join(kept, "file"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	s := newSpace(t, kept)
	name := "/run/netns-test-" + filepath.Base(kept)
	err := s.Do(func() error {
		if _, err := os.Stat(filepath.Join(kept, "file")); err != nil {
			t.Errorf("the kept folder: %v", err)
		}
		return os.WriteFile(name, nil, 0o644)
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(name); err == nil {
		os.Remove(name)
		t.Error("a file that was written in the host is outside too")
	}
}

func TestProcesses(t *testing.T) {
	s := newSpace(t)
	cmd := exec.Command("sleep", "60")
	if err := s.Do(cmd.Start); err != nil {
		t.Fatal(err)
	}
	pids, err := Processes(map[string]*Space{"host": s})
	if err != nil || !slices.Equal(pids, []int{cmd.Process.Pid}) {
		t.Errorf("got %v, %v; want %d", pids, err, cmd.Process.Pid)
	}
	if err := cmd.Process.Signal(unix.SIGKILL); err != nil {
		t.Fatal(err)
	}
	_ = cmd.Wait() // it was killed
	if pids, err := Processes(map[string]*Space{"host": s}); err != nil || len(pids) != 0 {
		t.Errorf("after its end: got %v, %v", pids, err)
	}
}

func TestDoAfterClose(t *testing.T) {
	s := newSpace(t)
	s.Close()
	if err := s.Do(func() error { return nil }); err != ErrClosed {
		t.Errorf("got %v, want %v", err, ErrClosed)
	}
}
