package main

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// lockPath is held by the one process that programs the node.
const lockPath = "/run/kube-ipvs.lock"

// errRunning says that there is another one.
var errRunning = errors.New("another kube-ipvs runs on this node (it holds " + lockPath + "): stop it first")

// alone makes sure that no other kube-ipvs programs the node until release is
// called. Where /run cannot be written, as in some containers, it cannot tell.
func alone() (release func(), err error) {
	file, err := os.OpenFile(lockPath, os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return func() {}, nil
	}
	err = unix.Flock(int(file.Fd()), unix.LOCK_EX|unix.LOCK_NB)
	switch {
	case errors.Is(err, unix.EWOULDBLOCK):
		file.Close()
		return nil, errRunning
	case err != nil:
		file.Close()
		return nil, fmt.Errorf("lock %s: %w", lockPath, err)
	}
	return func() { file.Close() }, nil
}
