package ipvs

import (
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"os"
	"syscall"

	"github.com/kube-ipvs/kube-ipvs/state"
	moby "github.com/moby/ipvs"
	"github.com/sirupsen/logrus"
	"golang.org/x/sys/unix"
)

// Kernel is what the layer asks of IPVS. Errors are those of the kernel:
// EEXIST for what is there already, ESRCH for a virtual server and ENOENT for
// a real server or scheduler that is not there.
type Kernel interface {
	Servers() ([]Server, error)
	// Has tells whether a virtual server is there.
	Has(state.ServerKey) (bool, error)
	// Reals lists the real servers of a virtual server; none if that is not
	// there.
	Reals(state.ServerKey) ([]Real, error)
	AddServer(Server) error
	EditServer(Server) error
	DelServer(state.ServerKey) error
	AddReal(state.ServerKey, Real) error
	EditReal(state.ServerKey, Real) error
	DelReal(state.ServerKey, netip.AddrPort) error
	Timeouts() (Timeouts, error)
	SetTimeouts(Timeouts) error
}

// Server is a virtual server without its real servers.
type Server struct {
	Key       state.ServerKey
	Scheduler string
	Flags     state.ServerFlags
	Timeout   uint32 // seconds
}

// Real is a real server as the kernel holds it.
type Real struct {
	At     netip.AddrPort
	Weight int
	// Forward is the forwarding method, the kernel's IP_VS_CONN_F_MASQ (0) for
	// everything of ours.
	Forward uint32
	// Active and Inactive count connections. For TCP and SCTP the kernel counts
	// established ones and those in certain states of opening as active, the
	// others as inactive; every UDP flow counts as inactive.
	Active, Inactive int
}

// flagHashed is internal to the kernel and shows in what it reports.
const flagHashed = 0x2

// netlinkKernel speaks to the kernel through moby/ipvs.
type netlinkKernel struct{ handle *moby.Handle }

// openKernel opens IPVS in the calling thread's network namespace. It asks for
// the generic-netlink family first: moby/ipvs remembers a family that was
// missing for ever, and then every call seems to succeed (moby/ipvs#27).
func openKernel() (*netlinkKernel, error) {
	if err := familyPresent(); err != nil {
		return nil, err
	}
	// moby/ipvs runs modprobe although the module is there, and complains through
	// a logger of its own if that fails, as it does in a container.
	logrus.SetOutput(io.Discard)
	h, err := moby.New("")
	if err != nil {
		return nil, fmt.Errorf("open IPVS netlink socket: %w", err)
	}
	return &netlinkKernel{handle: h}, nil
}

// ErrNoIPVS says that the kernel has no IPVS.
var ErrNoIPVS = errors.New("the kernel has no IPVS: load the module ip_vs (modprobe ip_vs; on some distributions it is in a package such as kernel-modules-extra)")

func familyPresent() error {
	if _, err := os.Stat("/proc/net/ip_vs"); err == nil {
		return nil
	}
	// Opening a netlink request of the family makes the kernel load it.
	if err := loadFamily(); err != nil {
		return fmt.Errorf("%w (%v)", ErrNoIPVS, err)
	}
	if _, err := os.Stat("/proc/net/ip_vs"); err != nil {
		return ErrNoIPVS
	}
	return nil
}

func (k *netlinkKernel) Servers() ([]Server, error) {
	list, err := k.handle.GetServices()
	if err != nil {
		return nil, err
	}
	servers := make([]Server, 0, len(list))
	for _, s := range list {
		servers = append(servers, Server{
			Key: keyOf(s), Scheduler: s.SchedName, Timeout: timeoutOf(s),
			Flags: state.ServerFlags(s.Flags &^ flagHashed),
		})
	}
	return servers, nil
}

// timeoutOf is the persistence time-out; the kernel reports one without
// meaning for virtual servers that are not persistent.
func timeoutOf(s *moby.Service) uint32 {
	if state.ServerFlags(s.Flags)&state.Persistent == 0 {
		return 0
	}
	return s.Timeout
}

func keyOf(s *moby.Service) state.ServerKey {
	if s.FWMark != 0 {
		if s.AddressFamily == syscall.AF_INET6 {
			return state.MarkKey(state.IPv6, s.FWMark)
		}
		return state.MarkKey(state.IPv4, s.FWMark)
	}
	addr, _ := netip.AddrFromSlice(s.Address)
	if s.AddressFamily == syscall.AF_INET {
		addr = addr.Unmap()
	}
	return state.ServerKey{Addr: addr, Protocol: state.Protocol(s.Protocol), Port: s.Port}
}

func (k *netlinkKernel) Has(key state.ServerKey) (bool, error) {
	_, err := k.handle.GetService(service(Server{Key: key}))
	if gone(err) {
		return false, nil
	}
	return err == nil, err
}

func (k *netlinkKernel) Reals(key state.ServerKey) ([]Real, error) {
	list, err := k.handle.GetDestinations(service(Server{Key: key}))
	if err != nil {
		return nil, err
	}
	reals := make([]Real, 0, len(list))
	for _, d := range list {
		addr, _ := netip.AddrFromSlice(d.Address)
		if d.AddressFamily == syscall.AF_INET {
			addr = addr.Unmap()
		}
		reals = append(reals, Real{
			At: netip.AddrPortFrom(addr, d.Port), Weight: d.Weight,
			Forward: d.ConnectionFlags & moby.ConnectionFlagFwdMask,
			Active:  d.ActiveConnections, Inactive: d.InactiveConnections,
		})
	}
	return reals, nil
}

func (k *netlinkKernel) AddServer(s Server) error  { return k.handle.NewService(service(s)) }
func (k *netlinkKernel) EditServer(s Server) error { return k.handle.UpdateService(service(s)) }
func (k *netlinkKernel) DelServer(key state.ServerKey) error {
	return k.handle.DelService(service(Server{Key: key}))
}
func (k *netlinkKernel) AddReal(key state.ServerKey, r Real) error {
	return k.handle.NewDestination(service(Server{Key: key}), destination(r))
}
func (k *netlinkKernel) EditReal(key state.ServerKey, r Real) error {
	return k.handle.UpdateDestination(service(Server{Key: key}), destination(r))
}
func (k *netlinkKernel) DelReal(key state.ServerKey, at netip.AddrPort) error {
	return k.handle.DelDestination(service(Server{Key: key}), destination(Real{At: at}))
}

func (k *netlinkKernel) Timeouts() (Timeouts, error) {
	c, err := k.handle.GetConfig()
	if err != nil {
		return Timeouts{}, err
	}
	return Timeouts{TCP: c.TimeoutTCP, TCPFin: c.TimeoutTCPFin, UDP: c.TimeoutUDP}, nil
}

func (k *netlinkKernel) SetTimeouts(t Timeouts) error {
	return k.handle.SetConfig(&moby.Config{TimeoutTCP: t.TCP, TimeoutTCPFin: t.TCPFin, TimeoutUDP: t.UDP})
}

// service returns the kernel's form of a virtual server. The netmask of a
// persistent one keeps clients apart by their whole address.
func service(s Server) *moby.Service {
	m := &moby.Service{
		SchedName: s.Scheduler, Flags: uint32(s.Flags), Timeout: s.Timeout,
		FWMark: s.Key.Mark, Protocol: uint16(s.Key.Protocol), Port: s.Key.Port,
		AddressFamily: syscall.AF_INET, Netmask: 0xffffffff,
	}
	if s.Key.Mark == 0 {
		m.Address = net.IP(s.Key.Addr.AsSlice())
	}
	if s.Key.Family() == state.IPv6 {
		m.AddressFamily, m.Netmask = syscall.AF_INET6, 128
	}
	return m
}

func destination(r Real) *moby.Destination {
	d := &moby.Destination{
		Address: net.IP(r.At.Addr().AsSlice()), Port: r.At.Port(), Weight: r.Weight,
		ConnectionFlags: r.Forward, AddressFamily: syscall.AF_INET,
	}
	if r.At.Addr().Is6() {
		d.AddressFamily = syscall.AF_INET6
	}
	return d
}

// gone reports whether an error says that what was to be removed is not there.
func gone(err error) bool { return errors.Is(err, unix.ENOENT) || errors.Is(err, unix.ESRCH) }
