// Package lab boots a guest whose kernel has IPVS and runs a job as root inside it, with the real kube-apiserver
// beside it. It never touches the host's own network, and leaves no process and no file outside its cache.
//
// The same program takes three parts, one inside the other:
//
//	host   builds what is needed, starts the box, forwards output and status
//	box    process 1 of its own process, network and mount namespaces on the host: etcd, kube-apiserver, the guest
//	guest  process 1 of the guest kernel: mounts, modules, the job, power off
package lab

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
)

// Job is something that is done inside the guest.
type Job struct {
	Name    string
	Summary string
	// API says that the job needs etcd and kube-apiserver.
	API bool
	// Proxy says that the job needs the binary of the proxy under test.
	Proxy bool
	// Prepare runs on the host before the guest boots: it checks the arguments, and builds and copies into
	// Host.Dir what the guest will read. It may be nil. The arguments that it returns are those of Run.
	Prepare func(ctx context.Context, h *Host, args []string) ([]string, error)
	// Run is the job itself, inside the guest.
	Run func(ctx context.Context, g *Guest, args []string) error
	// Finish runs on the host when the guest has ended by itself, whatever its status. It may be nil.
	Finish func(h *Host) error
}

// Unsuccessful is the error of a job that has said already what went wrong.
type Unsuccessful struct{}

func (Unsuccessful) Error() string { return "the job was not successful" }

// Guest is what a job finds inside the guest.
type Guest struct {
	// Kind is the sort of guest: uml, qemu or native.
	Kind string
	// Dir is a folder that host and guest share, also for writing. It goes when the lab ends.
	Dir string
	// Failures is the other one; its content stays.
	Failures string
	// API is the address of kube-apiserver as seen from the guest's own network namespace; empty without one.
	API string
	// AdminToken and ProxyToken are the API's users: the lab, and a proxy with the rights of kube-proxy.
	AdminToken, ProxyToken string
	// Proxy is the binary under test, ProxyName what it is called.
	Proxy     string
	ProxyName string
	// Repo is the project's folder.
	Repo string
	// Kubernetes is the version of kube-apiserver and kube-proxy.
	Kubernetes string
}

// spec is what the host tells the box and the guest, in a file.
type spec struct {
	Guest   Guest
	Job     string
	Args    []string
	WithAPI bool
	Work    string   // working directory on the host
	Env     []string // of the job
}

const specFile = "spec.json"

func (s spec) write() error {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(s.Guest.Dir, specFile), data, 0o644)
}

func readSpec(dir string) (spec, error) {
	var s spec
	data, err := os.ReadFile(filepath.Join(dir, specFile))
	if err != nil {
		return s, err
	}
	if err := json.Unmarshal(data, &s); err != nil {
		return s, fmt.Errorf("reading %s: %w", specFile, err)
	}
	return s, nil
}
