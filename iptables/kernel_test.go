package iptables

import (
	"errors"
	"os"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelLockHeld holds the lock that the legacy programs take, as another
// process would.
func TestKernelLockHeld(t *testing.T) {
	s := kernelSubject(t)
	if f, err := detected(); err != nil || f.Name != Legacy {
		t.Skip("only the legacy programs have a lock")
	}
	want := filterInput("-j RETURN")
	s.sync(t, want)

	lock, err := os.OpenFile("/run/xtables.lock", os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		t.Fatal(err)
	}
	want.Rules[0].Chains[0].Rules = []string{"-j ACCEPT"}
	if _, err := s.Ensure(t.Context(), want, all()); !errors.Is(err, ErrLocked) {
		t.Errorf("writing: error %v, want %v", err, ErrLocked)
	}
	want.Rules[0].Jumps = nil
	if _, err := s.Prune(t.Context(), want, all()); !errors.Is(err, ErrLocked) {
		t.Errorf("deleting a jump: error %v, want %v", err, ErrLocked)
	}
	if err := lock.Close(); err != nil {
		t.Fatal(err)
	}
	if got := s.sync(t, want); !strings.Contains(got, "-restore") || !strings.Contains(got, " -D INPUT") {
		t.Errorf("when the lock was free again:\n%s", got)
	}
}

// TestKernelRemove removes from every flavour that is there.
func TestKernelRemove(t *testing.T) {
	s := kernelSubject(t)
	s.sync(t, filterInput("-j RETURN"))
	f, err := detected()
	if err != nil {
		t.Fatal(err)
	}
	if ops, err := Remove(t.Context(), f.Name); len(ops) != 0 || err != nil {
		t.Errorf("keeping %s: %s, %v", f.Name, printed(ops), err)
	}
	ops, err := Remove(t.Context(), "")
	if err != nil {
		t.Fatal(err)
	}
	equal(t, "operations", printed(ops),
		"iptables -t filter -D INPUT -m comment --comment kube-ipvs -j KIPVS-INPUT\niptables -t filter -X KIPVS-INPUT")
	if ops, err := Remove(t.Context(), ""); len(ops) != 0 || err != nil {
		t.Errorf("again: %s, %v", printed(ops), err)
	}
}
