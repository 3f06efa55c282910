// Package traffictest gives tests a network of their own, so that they may take any port and address. It needs root.
package traffictest

import (
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// Namespace is a network namespace with nothing but a loopback device. It lives as long as its thread.
type Namespace struct{ calls chan func() }

// New makes a namespace that ends with the test. Without root the test is skipped.
func New(t *testing.T) Namespace {
	t.Helper()
	n := Namespace{calls: make(chan func())}
	ready := make(chan error)
	go func() {
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine, and the namespace with it.
		ready <- enter()
		for call := range n.calls {
			call()
		}
	}()
	t.Cleanup(func() { close(n.calls) })
	if err := <-ready; err != nil {
		t.Skipf("no network namespace here (needs root): %v", err)
	}
	return n
}

func enter() error {
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		return err
	}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM, 0)
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	up, err := unix.NewIfreq("lo")
	if err != nil {
		return err
	}
	up.SetUint16(unix.IFF_UP)
	return unix.IoctlIfreq(fd, unix.SIOCSIFFLAGS, up)
}

// Do runs fn inside the namespace. Calls wait for each other.
func (n Namespace) Do(fn func() error) error {
	done := make(chan error)
	n.calls <- func() { done <- fn() }
	return <-done
}
