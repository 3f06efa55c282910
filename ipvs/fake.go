package ipvs

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
	"golang.org/x/sys/unix"
)

// Fake is a kernel in memory, for tests. It refuses what the kernel refuses;
// the contract suite holds it to that.
type Fake struct {
	servers    map[state.ServerKey]*fakeServer
	timeouts   Timeouts
	schedulers []string
	// Fault, if set, is asked before every call; its error is the call's.
	Fault func(call string) error
	// Writes counts the requests that changed something, Reads the dumps.
	Writes, Reads int
}

type fakeServer struct {
	Server
	reals map[netip.AddrPort]*Real
}

// NewFake returns a kernel without virtual servers that has every scheduler.
func NewFake() *Fake {
	return &Fake{
		servers:  map[state.ServerKey]*fakeServer{},
		timeouts: Timeouts{TCP: 900 * time.Second, TCPFin: 120 * time.Second, UDP: 300 * time.Second},
		schedulers: []string{
			"rr", "wrr", "lc", "wlc", "lblc", "lblcr", "sh", "dh", "mh", "sed", "nq", "fo", "ovf", "twos",
		},
	}
}

// Servers lists the virtual servers.
func (f *Fake) Servers() ([]Server, error) {
	if err := f.fault("Servers"); err != nil {
		return nil, err
	}
	f.Reads++
	var list []Server
	for _, s := range f.servers {
		list = append(list, s.Server)
	}
	return list, nil
}

// Has tells whether a virtual server is there.
func (f *Fake) Has(key state.ServerKey) (bool, error) {
	if err := f.fault("Has"); err != nil {
		return false, err
	}
	_, ok := f.servers[key]
	return ok, nil
}

// Reals lists the real servers of a virtual server; none if that is not there.
func (f *Fake) Reals(key state.ServerKey) ([]Real, error) {
	if err := f.fault("Reals"); err != nil {
		return nil, err
	}
	f.Reads++
	s, ok := f.servers[key]
	if !ok {
		return nil, nil
	}
	var list []Real
	for _, r := range s.reals {
		list = append(list, *r)
	}
	return list, nil
}

// AddServer creates a virtual server.
func (f *Fake) AddServer(s Server) error {
	if err := f.fault("AddServer"); err != nil {
		return err
	}
	if _, ok := f.servers[s.Key]; ok {
		return unix.EEXIST
	}
	if err := f.valid(s); err != nil {
		return err
	}
	f.Writes++
	f.servers[s.Key] = &fakeServer{Server: s, reals: map[netip.AddrPort]*Real{}}
	return nil
}

func (f *Fake) valid(s Server) error {
	if !slices.Contains(f.schedulers, s.Scheduler) {
		return unix.ENOENT
	}
	return nil
}

// EditServer changes the scheduler, flags and time-out of a virtual server.
func (f *Fake) EditServer(s Server) error {
	if err := f.fault("EditServer"); err != nil {
		return err
	}
	have, ok := f.servers[s.Key]
	if !ok {
		return unix.ESRCH
	}
	if err := f.valid(s); err != nil {
		return err
	}
	f.Writes++
	have.Server = s
	return nil
}

// DelServer removes a virtual server with its real servers.
func (f *Fake) DelServer(key state.ServerKey) error {
	if err := f.fault("DelServer"); err != nil {
		return err
	}
	if _, ok := f.servers[key]; !ok {
		return unix.ESRCH
	}
	f.Writes++
	delete(f.servers, key)
	return nil
}

// AddReal adds a real server.
func (f *Fake) AddReal(key state.ServerKey, r Real) error {
	if err := f.fault("AddReal"); err != nil {
		return err
	}
	s, ok := f.servers[key]
	if !ok {
		return unix.ESRCH
	}
	if _, ok := s.reals[r.At]; ok {
		return unix.EEXIST
	}
	if a := r.At.Addr(); a.IsMulticast() || a.IsUnspecified() || a == netip.AddrFrom4([4]byte{255, 255, 255, 255}) {
		return unix.EINVAL
	}
	f.Writes++
	r.Active, r.Inactive = 0, 0
	s.reals[r.At] = &r
	return nil
}

// EditReal changes the weight of a real server.
func (f *Fake) EditReal(key state.ServerKey, r Real) error {
	if err := f.fault("EditReal"); err != nil {
		return err
	}
	s, ok := f.servers[key]
	if !ok {
		return unix.ESRCH
	}
	have, ok := s.reals[r.At]
	if !ok {
		return unix.ENOENT
	}
	f.Writes++
	have.Weight, have.Forward = r.Weight, r.Forward
	return nil
}

// DelReal removes a real server.
func (f *Fake) DelReal(key state.ServerKey, at netip.AddrPort) error {
	if err := f.fault("DelReal"); err != nil {
		return err
	}
	s, ok := f.servers[key]
	if !ok {
		return unix.ESRCH
	}
	if _, ok := s.reals[at]; !ok {
		return unix.ENOENT
	}
	f.Writes++
	delete(s.reals, at)
	return nil
}

// Timeouts returns the connection time-outs.
func (f *Fake) Timeouts() (Timeouts, error) { return f.timeouts, nil }

// SetTimeouts sets the connection time-outs; 0 leaves one as it is.
func (f *Fake) SetTimeouts(t Timeouts) error {
	f.Writes++
	f.timeouts = f.timeouts.with(t)
	return nil
}

func (f *Fake) fault(call string) error {
	if f.Fault == nil {
		return nil
	}
	return f.Fault(call)
}

// Connections sets the connection counts of a real server, as traffic would.
func (f *Fake) Connections(key state.ServerKey, at netip.AddrPort, active, inactive int) {
	r := f.servers[key].reals[at]
	r.Active, r.Inactive = active, inactive
}

// Clear removes everything, as "ipvsadm -C" does.
func (f *Fake) Clear() { clear(f.servers) }

// Save prints the table as "ipvsadm -Sn" does, sorted.
func (f *Fake) Save() string {
	var b strings.Builder
	keys := map[state.ServerKey]struct{}{}
	for k := range f.servers {
		keys[k] = struct{}{}
	}
	for _, k := range sortedKeys(keys) {
		s := f.servers[k]
		fmt.Fprintf(&b, "-A %s%s\n", k, s.options())
		for _, at := range sortedAddrs(s.reals) {
			fmt.Fprintf(&b, "-a %s -r %s -m -w %d\n", k, at, s.reals[at].Weight)
		}
	}
	return b.String()
}
