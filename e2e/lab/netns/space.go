// Package netns gives a Go program hosts to be on: network namespaces with file systems of their own for what is
// per host (/run, /tmp, /sys). It never changes the namespaces of any thread but its own.
package netns

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// Space is one host: a network namespace with lo up, and a mount namespace in which /run and /tmp are empty and /sys shows the
// devices of that network namespace.
type Space struct {
	// Name is what the host is called; Dir/Name is a bind mount of its network namespace, so that
	// `ip netns exec Name` works where Dir is /run/netns.
	Name string
	// Inode identifies the network namespace, as in the target of /proc/PID/ns/net.
	Inode uint64

	bind   string
	keep   []string
	net    int
	mounts int

	mu     sync.Mutex
	idle   []chan func()
	closed bool
}

// New makes a host named name and binds its network namespace to dir/name. The folders in keep stay visible there,
// also if they are under /run or /tmp.
func New(dir, name string, keep ...string) (*Space, error) {
	s := &Space{Name: name, bind: filepath.Join(dir, name), keep: keep, net: -1, mounts: -1}
	if err := onNewThread(s.create); err != nil {
		s.Close()
		return nil, fmt.Errorf("making the network namespace %s: %w", name, err)
	}
	return s, nil
}

// create runs on a fresh thread, which ends with it.
func (s *Space) create() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("unshare network: %w", err)
	}
	if err := s.bindNet(); err != nil {
		return err
	}
	if err := loopbackUp(); err != nil {
		return fmt.Errorf("set lo up: %w", err)
	}
	if err := unix.Unshare(unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("unshare mounts: %w", err)
	}
	if err := privateMounts(s.keep); err != nil {
		return err
	}
	var err error
	if s.net, err = unix.Open("/proc/thread-self/ns/net", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	if s.mounts, err = unix.Open("/proc/thread-self/ns/mnt", unix.O_RDONLY|unix.O_CLOEXEC, 0); err != nil {
		return err
	}
	var stat unix.Stat_t
	if err := unix.Fstat(s.net, &stat); err != nil {
		return err
	}
	s.Inode = stat.Ino
	return nil
}

// bindNet makes the namespace visible to `ip netns`, which is also how links are moved between hosts.
func (s *Space) bindNet() error {
	if err := os.MkdirAll(filepath.Dir(s.bind), 0o755); err != nil {
		return err
	}
	if err := os.WriteFile(s.bind, nil, 0o444); err != nil {
		return err
	}
	if err := unix.Mount("/proc/thread-self/ns/net", s.bind, "", unix.MS_BIND, ""); err != nil {
		return fmt.Errorf("bind %s: %w", s.bind, err)
	}
	return nil
}

// loopbackUp also makes the local routing table, without which the kernel takes no address for a real server's.
func loopbackUp() error {
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	lo, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	lo.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, lo)
}

func privateMounts(keep []string) error {
	if err := unix.Mount("", "/", "", unix.MS_REC|unix.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("make mounts private: %w", err)
	}
	restore, err := hold(keep)
	if err != nil {
		return err
	}
	for _, m := range []struct{ kind, target string }{{"tmpfs", "/run"}, {"tmpfs", "/tmp"}, {"sysfs", "/sys"}} {
		if err := unix.Mount(m.kind, m.target, m.kind, 0, ""); err != nil {
			return fmt.Errorf("mount %s on %s: %w", m.kind, m.target, err)
		}
	}
	return restore()
}

// hold opens folders that are about to be covered and returns what makes them visible again under the same paths.
func hold(paths []string) (restore func() error, err error) {
	held := map[string]int{}
	for _, path := range paths {
		if !strings.HasPrefix(path, "/run/") && !strings.HasPrefix(path, "/tmp/") {
			continue
		}
		if held[path], err = unix.Open(path, unix.O_PATH|unix.O_CLOEXEC, 0); err != nil {
			return nil, fmt.Errorf("open %s: %w", path, err)
		}
	}
	return func() error {
		for path, fd := range held {
			if err := os.MkdirAll(path, 0o755); err != nil {
				return err
			}
			source := fmt.Sprintf("/proc/thread-self/fd/%d", fd)
			if err := unix.Mount(source, path, "", unix.MS_BIND, ""); err != nil {
				return fmt.Errorf("bind %s: %w", path, err)
			}
			unix.Close(fd)
		}
		return nil
	}, nil
}

// NetFD is a file descriptor of the network namespace, valid until Close.
func (s *Space) NetFD() int { return s.net }

// ErrClosed says that the host is gone.
var ErrClosed = errors.New("the network namespace is closed")

// Do calls f on a thread that is in the host's namespaces. Sockets that f opens and processes that it starts belong
// to the host for good; they may be used from anywhere afterwards. Several calls may run at once.
func (s *Space) Do(f func() error) error {
	thread, err := s.thread()
	if err != nil {
		return err
	}
	done := make(chan error, 1)
	thread <- func() { done <- f() }
	err = <-done
	s.release(thread)
	return err
}

func (s *Space) thread() (chan func(), error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return nil, ErrClosed
	}
	if n := len(s.idle); n > 0 {
		thread := s.idle[n-1]
		s.idle = s.idle[:n-1]
		return thread, nil
	}
	return s.startThread()
}

func (s *Space) release(thread chan func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		close(thread)
		return
	}
	s.idle = append(s.idle, thread)
}

// startThread makes one more thread of the host. It is never unlocked, so that it ends with its goroutine.
func (s *Space) startThread() (chan func(), error) {
	thread, entered := make(chan func()), make(chan error)
	go func() {
		runtime.LockOSThread()
		if err := s.enter(); err != nil {
			entered <- err
			return
		}
		entered <- nil
		for f := range thread {
			f()
		}
	}()
	if err := <-entered; err != nil {
		return nil, fmt.Errorf("entering the network namespace %s: %w", s.Name, err)
	}
	return thread, nil
}

func (s *Space) enter() error {
	if err := unix.Unshare(unix.CLONE_FS); err != nil {
		return fmt.Errorf("unshare the working directory: %w", err)
	}
	if err := unix.Setns(s.mounts, unix.CLONE_NEWNS); err != nil {
		return fmt.Errorf("setns mounts: %w", err)
	}
	if err := unix.Setns(s.net, unix.CLONE_NEWNET); err != nil {
		return fmt.Errorf("setns network: %w", err)
	}
	return nil
}

// Processes lists the processes whose network namespace is one of these, without this one. Zombies
// have no namespace.
func Processes(spaces map[string]*Space) ([]int, error) {
	ours := map[uint64]bool{}
	for _, s := range spaces {
		ours[s.Inode] = true
	}
	names, err := readDirNames("/proc")
	if err != nil {
		return nil, err
	}
	var pids []int
	for _, name := range names {
		pid, err := strconv.Atoi(name)
		if err != nil || pid == os.Getpid() {
			continue
		}
		var stat unix.Stat_t
		if unix.Stat("/proc/"+name+"/ns/net", &stat) == nil && ours[stat.Ino] {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// Close ends the host's threads. The kernel takes the namespaces down when the last process and socket in them is gone.
func (s *Space) Close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.closed = true
	for _, thread := range s.idle {
		close(thread)
	}
	for _, fd := range []int{s.net, s.mounts} {
		if fd >= 0 {
			unix.Close(fd)
		}
	}
	// Nothing is bound there if New failed early.
	_ = unix.Unmount(s.bind, unix.MNT_DETACH)
	_ = os.Remove(s.bind)
}

func onNewThread(f func() error) error {
	done := make(chan error)
	go func() {
		runtime.LockOSThread()
		done <- f()
	}()
	return <-done
}

func readDirNames(path string) ([]string, error) {
	dir, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer dir.Close()
	return dir.Readdirnames(-1)
}
