package state

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net/netip"
	"strconv"
)

// Node is what this node's kernel shall hold.
type Node struct {
	VirtualServers map[ServerKey]*VirtualServer
	// Addresses are to be bound on the proxy's device.
	Addresses map[netip.Addr]struct{}
	// Sets are the ipsets, by name. Their entries are added in the order of
	// SetOrder and removed in the opposite one.
	Sets     map[string]*Set
	SetOrder []string
	// Rules are the iptables tables, one for each family and table.
	Rules []Table
	// Checks are the health-check node ports, by Service.
	Checks map[Name]HealthCheck
	// Flows holds, for each UDP virtual server, the real servers whose
	// conntrack entries are still good. Entries of any other are stale.
	Flows map[ServerKey]map[netip.AddrPort]struct{}
}

// NewNode returns a Node that holds nothing.
func NewNode() *Node {
	return &Node{
		VirtualServers: map[ServerKey]*VirtualServer{},
		Addresses:      map[netip.Addr]struct{}{},
		Sets:           map[string]*Set{},
		Checks:         map[Name]HealthCheck{},
		Flows:          map[ServerKey]map[netip.AddrPort]struct{}{},
	}
}

// ServerKey identifies a virtual server of the kernel: an address, protocol
// and port, or a firewall mark. A mark's Addr is the unspecified address of
// its family, its Protocol and Port are 0.
type ServerKey struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
	Mark     uint32
}

// MarkKey returns the key of the virtual server of a firewall mark.
func MarkKey(f Family, mark uint32) ServerKey {
	if f == IPv4 {
		return ServerKey{Addr: netip.IPv4Unspecified(), Mark: mark}
	}
	return ServerKey{Addr: netip.IPv6Unspecified(), Mark: mark}
}

// Family returns the address family of the virtual server.
func (k ServerKey) Family() Family { return FamilyOf(k.Addr) }

// String returns the key in ipvsadm's notation, such as
// "-t 10.96.0.1:443", "-u [fd00::1]:53" or "-f 257 -6".
func (k ServerKey) String() string {
	if k.Mark != 0 {
		s := "-f " + strconv.FormatUint(uint64(k.Mark), 10)
		if k.Family() == IPv6 {
			s += " -6"
		}
		return s
	}
	addr := netip.AddrPortFrom(k.Addr, k.Port).String()
	switch k.Protocol {
	case TCP:
		return "-t " + addr
	case UDP:
		return "-u " + addr
	case SCTP:
		return "--sctp-service " + addr
	}
	return k.Protocol.String() + " " + addr
}

// Compare orders keys by family, address, port, protocol and mark.
func (k ServerKey) Compare(o ServerKey) int {
	return cmp.Or(k.Addr.Compare(o.Addr), cmp.Compare(k.Port, o.Port),
		cmp.Compare(k.Protocol, o.Protocol), cmp.Compare(k.Mark, o.Mark))
}

// ServerFlags are the kernel's IP_VS_SVC_F_* bits (include/uapi/linux/ip_vs.h).
type ServerFlags uint32

// The flags in use. The meaning of the scheduler flags depends on the
// scheduler: for sh and mh they are fallback and port.
const (
	Persistent ServerFlags = 0x1
	OnePacket  ServerFlags = 0x4
	Sched1     ServerFlags = 0x8  // sh-fallback, mh-fallback
	Sched2     ServerFlags = 0x10 // sh-port, mh-port
	Sched3     ServerFlags = 0x20
)

// VirtualServer is a virtual server that the kernel shall hold. One without a
// scheduler is kept as it is if it is there, and never created.
type VirtualServer struct {
	Scheduler string
	Flags     ServerFlags
	// Timeout is the persistence time-out in seconds, 0 without Persistent.
	Timeout uint32
	// Datagrams says that what it serves is UDP.
	Datagrams bool
	// Real are the real servers with their weight. Weight 0 stands for an
	// endpoint that is known but shall get no new connections: such a real
	// server is kept while it has connections and never created.
	Real map[netip.AddrPort]int
}

// Set is an ipset.
type Set struct {
	Type   SetType
	Family Family
	// Marks says that entries carry a packet mark (skbinfo).
	Marks bool
	// Entries are the members, each with its mark (0 without Marks).
	Entries map[Entry]uint32
}

// SetType is the type of an ipset.
type SetType string

// The set types in use.
const (
	HashIP        SetType = "hash:ip"
	HashNet       SetType = "hash:net"
	HashIPPort    SetType = "hash:ip,port"
	HashIPPortIP  SetType = "hash:ip,port,ip"
	HashIPPortNet SetType = "hash:ip,port,net"
)

// Entry is a member of a set. The set's type says which fields count: Net for
// hash:ip (as a single address) and hash:net, Addr, Protocol and Port for
// hash:ip,port, and in addition Net for the two types with a third part.
type Entry struct {
	Addr     netip.Addr
	Protocol Protocol
	Port     uint16
	Net      netip.Prefix
}

// IPEntry returns an entry for a set of type hash:ip.
func IPEntry(a netip.Addr) Entry { return Entry{Net: netip.PrefixFrom(a, a.BitLen())} }

// Key returns the key that an entry with an address, a protocol and a port
// stands for; for an address alone, the key without the other two.
func (e Entry) Key() ServerKey {
	if !e.Addr.IsValid() {
		return ServerKey{Addr: e.Net.Addr()}
	}
	return ServerKey{Addr: e.Addr, Protocol: e.Protocol, Port: e.Port}
}

// String returns the entry as "ipset save" prints it, such as
// "10.96.0.1,tcp:443" or "10.0.0.0/8".
func (e Entry) String() string {
	third := ""
	if e.Net.IsValid() {
		third = e.Net.String()
		if e.Net.IsSingleIP() {
			third = e.Net.Addr().String()
		}
	}
	if !e.Addr.IsValid() {
		return third
	}
	s := fmt.Sprintf("%s,%s:%d", e.Addr, e.Protocol, e.Port)
	if third != "" {
		s += "," + third
	}
	return s
}

// Table is the content of our chains in one iptables table of one family.
type Table struct {
	Family Family
	Name   string // filter, nat or mangle
	// Chains are ours, with their rules in iptables-save notation without the
	// leading "-A CHAIN ".
	Chains []Chain
	// Jumps lead from the built-in chains into ours.
	Jumps []Jump
}

// Chain is one of our chains.
type Chain struct {
	Name  string
	Rules []string
}

// Jump is a rule at the head of a built-in chain that leads to a chain of ours.
type Jump struct{ From, To string }

// HealthCheck is a Service's health-check node port.
type HealthCheck struct {
	Port uint16
	// Addresses to listen on; empty means all of both families.
	Addresses []netip.Addr
	// Local is the number of distinct ready local endpoint addresses.
	Local int
}

// Change names the parts of a Node that may differ from the kernel, so that
// cost follows the change.
type Change struct {
	// All asks for the whole to be read and compared.
	All       bool
	Servers   map[ServerKey]struct{}
	Addresses map[netip.Addr]struct{}
	Entries   map[string]map[Entry]struct{}
	Checks    map[Name]struct{}
	// Failed are keys of which some layer could not ensure its part in this
	// pass. The layers after it make nothing reachable at such a key and no
	// layer prunes anything of it.
	Failed map[ServerKey]struct{}
}

// Empty reports whether there is nothing to look at.
func (c *Change) Empty() bool {
	return !c.All && len(c.Servers) == 0 && len(c.Addresses) == 0 && len(c.Entries) == 0 && len(c.Checks) == 0
}

// Server adds a virtual server to the change.
func (c *Change) Server(k ServerKey) {
	if c.Servers == nil {
		c.Servers = map[ServerKey]struct{}{}
	}
	c.Servers[k] = struct{}{}
}

// Address adds an address to the change.
func (c *Change) Address(a netip.Addr) {
	if c.Addresses == nil {
		c.Addresses = map[netip.Addr]struct{}{}
	}
	c.Addresses[a] = struct{}{}
}

// Entry adds a set's entry to the change.
func (c *Change) Entry(set string, e Entry) {
	if c.Entries == nil {
		c.Entries = map[string]map[Entry]struct{}{}
	}
	if c.Entries[set] == nil {
		c.Entries[set] = map[Entry]struct{}{}
	}
	c.Entries[set][e] = struct{}{}
}

// Check adds a Service's health check to the change.
func (c *Change) Check(n Name) {
	if c.Checks == nil {
		c.Checks = map[Name]struct{}{}
	}
	c.Checks[n] = struct{}{}
}

// Fails notes the keys that an error of a layer names. It returns false where
// the error, or a part of it, concerns no key alone.
func (c *Change) Fails(err error) bool {
	if err == nil {
		return true
	}
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		all := true
		for _, e := range joined.Unwrap() {
			all = c.Fails(e) && all
		}
		return all
	}
	var at *KeyError
	if !errors.As(err, &at) {
		return false
	}
	if c.Failed == nil {
		c.Failed = map[ServerKey]struct{}{}
	}
	for _, k := range at.Keys {
		c.Failed[k] = struct{}{}
	}
	return true
}

// FailedKey tells whether a key failed, by itself or because its address did.
func (c *Change) FailedKey(k ServerKey) bool {
	_, failed := c.Failed[k]
	_, address := c.Failed[ServerKey{Addr: k.Addr}]
	return failed || address
}

// FailedEntry tells whether an entry belongs to a key that failed.
func (c *Change) FailedEntry(e Entry) bool { return c.FailedKey(e.Key()) }

// FailedAddress tells whether an address failed, by itself or because every key
// that is wanted at it did. One Service's failure takes no address from another.
func (c *Change) FailedAddress(a netip.Addr, want *Node) bool {
	if !c.failedAt(a) {
		return false
	}
	if _, failed := c.Failed[ServerKey{Addr: a}]; failed {
		return true
	}
	for k := range want.VirtualServers {
		if k.Addr == a && !c.FailedKey(k) {
			return false
		}
	}
	return true
}

func (c *Change) failedAt(a netip.Addr) bool {
	for k := range c.Failed {
		if k.Addr == a {
			return true
		}
	}
	return false
}

// KeyError is an error of a layer that concerns some keys alone.
type KeyError struct {
	Keys []ServerKey
	Err  error
}

// FailKey returns an error that concerns one key alone.
func FailKey(k ServerKey, err error) error { return &KeyError{Keys: []ServerKey{k}, Err: err} }

// Error returns the text of the error itself, which names the key already.
func (e *KeyError) Error() string { return e.Err.Error() }

// Unwrap returns the error itself.
func (e *KeyError) Unwrap() error { return e.Err }

// NoScheduler is an error that says that the kernel lacks a scheduler.
type NoScheduler struct{ Name string }

// Error names the scheduler and its module.
func (e *NoScheduler) Error() string {
	return fmt.Sprintf("the kernel has no scheduler %q (module ip_vs_%s)", e.Name, e.Name)
}

// ErrForeign says that what is wanted at a key belongs to another program and
// is left alone. It is no failure of the node.
var ErrForeign = errors.New("belongs to another program and is left alone")

// Merge adds everything that o names.
func (c *Change) Merge(o *Change) {
	c.All = c.All || o.All
	for k := range o.Servers {
		c.Server(k)
	}
	for a := range o.Addresses {
		c.Address(a)
	}
	for set, entries := range o.Entries {
		for e := range entries {
			c.Entry(set, e)
		}
	}
	for n := range o.Checks {
		c.Check(n)
	}
}

// Op is an operation on the kernel that was carried out. It prints as the
// command that an operator would type.
type Op interface{ String() string }

// Layer is one kind of kernel state. A layer remembers what it believes the
// kernel to hold; Read renews that belief, Ensure and Prune compare it with
// what is wanted. Both look only at the keys that the change names, or at
// everything where it says All. They carry on after an error with the other
// keys and return the operations that succeeded and all errors joined. What
// already is as wanted costs no operation. An error that concerns some
// keys alone is a KeyError; any other means that the layer as a whole failed.
type Layer interface {
	// Read learns what the kernel holds.
	Read(context.Context) error
	// Ensure creates and edits; it removes nothing.
	Ensure(ctx context.Context, want *Node, change *Change) ([]Op, error)
	// Prune removes what is ours and not wanted.
	Prune(ctx context.Context, want *Node, change *Change) ([]Op, error)
}
