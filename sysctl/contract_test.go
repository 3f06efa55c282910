package sysctl

import (
	"os"
	"runtime"
	"testing"

	"golang.org/x/sys/unix"
)

// TestKernelTakesTheSettings sets everything on the running kernel, in a
// network namespace of its own, and takes it back.
func TestKernelTakesTheSettings(t *testing.T) {
	if os.Getenv("KUBE_IPVS_KERNEL") != "1" {
		t.Skip("KUBE_IPVS_KERNEL is not 1: no kernel to test on")
	}
	runtime.LockOSThread() // not unlocked: the thread ends with the test
	if err := unix.Unshare(unix.CLONE_NEWNET); err != nil {
		t.Fatal("making a network namespace:", err)
	}
	var name unix.Utsname
	if err := unix.Uname(&name); err != nil {
		t.Fatal(err)
	}
	version, err := ParseVersion(unix.ByteSliceToString(name.Release[:]))
	if err != nil {
		t.Fatal(err)
	}
	settings := IPVS(version, Options{IPv6: true, StrictARP: true})
	changed, err := Ensure("/proc/sys", settings)
	if err != nil || len(changed) == 0 {
		t.Fatalf("changed %v, %v", changed, err)
	}
	if again, err := Ensure("/proc/sys", settings); len(again) != 0 || err != nil {
		t.Errorf("a second time: %v, %v", again, err)
	}
	if err := Restore("/proc/sys", changed); err != nil {
		t.Fatal(err)
	}
	for _, c := range changed {
		if got, err := read("/proc/sys", c.Key); got != c.Old || err != nil {
			t.Errorf("%s is %d (%v) after all, want %d", c.Key, got, err, c.Old)
		}
	}
}
