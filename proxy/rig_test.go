package proxy

import (
	"context"
	"errors"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/conntrack"
	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/iptables"
	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/vip"
	"go.uber.org/zap"
)

// kernel is a whole node in memory. It outlives a proxy.
type kernel struct {
	sets    *ipset.Fake
	rules   *iptables.Fake
	servers *ipvs.Fake
	vips    *vip.Fake
	flows   *conntrack.Fake
	now     time.Time
}

func newKernel() *kernel {
	return &kernel{
		sets: ipset.NewFake(), rules: iptables.NewFake(), servers: ipvs.NewFake(), vips: vip.NewFake(),
		flows: conntrack.NewFake(), now: time.Unix(1_000_000, 0),
	}
}

// noSettings has everything set already.
type noSettings struct{}

func (noSettings) Ensure() ([]state.Op, error) { return nil, nil }

// noChecks is a health-check server that opens nothing.
type noChecks struct {
	want   map[state.Name]state.HealthCheck
	failed map[state.Name]error
	syncs  int
}

func (n *noChecks) Sync(want map[state.Name]state.HealthCheck) map[state.Name]error {
	n.want = want
	n.syncs++
	return n.failed
}

// rig is a proxy on a kernel in memory, driven a turn at a time.
type rig struct {
	*kernel
	proxy    *Proxy
	checks   *noChecks
	passes   []Pass
	problems map[state.Name][]desired.Problem
}

func (r *rig) Queued(time.Time) {}
func (r *rig) Began(time.Time)  {}
func (r *rig) Synced(p Pass)    { r.passes = append(r.passes, p) }
func (r *rig) Eligible(bool)    {}
func (r *rig) Problems(n state.Name, p []desired.Problem) {
	delete(r.problems, n)
	if len(p) > 0 {
		r.problems[n] = p
	}
}

func addr(s string) netip.Addr { return netip.MustParseAddr(s) }

func testOptions() *desired.Options {
	return &desired.Options{
		Families:      []state.Family{state.IPv4, state.IPv6},
		Scheduler:     desired.Scheduler{Name: "rr"},
		MasqueradeBit: 14, AnswerPing: true, RandomFully: true,
		Detector: desired.Detector{CIDRs: []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16"), netip.MustParsePrefix("fd00:244::/32")}},
	}
}

// start runs a fresh proxy, without any memory, on the kernel. The objects that
// exist have been handed over: two Nodes.
func (k *kernel) start(o *desired.Options) *rig {
	r := k.begin(o)
	r.proxy.Sink().Synced()
	return r
}

// begin is start while the sources are still handing over.
func (k *kernel) begin(o *desired.Options) *rig {
	r := &rig{kernel: k, checks: &noChecks{}, problems: map[state.Name][]desired.Problem{}}
	sets, vips := ipset.New(k.sets), vip.New(vip.DefaultDevice, k.vips)
	owned := func(key state.ServerKey) bool {
		if key.Mark != 0 {
			return desired.OurMark(key.Mark)
		}
		_, listed := sets.Entries(desired.Ledger(key.Family()))[state.Entry{Addr: key.Addr, Protocol: key.Protocol, Port: key.Port}]
		return listed
	}
	bound := func(a netip.Addr) bool { _, there := vips.Addresses()[a]; return there }
	r.proxy = New(Config{
		Log: zap.NewNop(), Node: "node1", Options: o, Period: 30 * time.Second, Now: func() time.Time { return k.now }, Observer: r,
		Layers: Layers{
			Settings: noSettings{}, Sets: sets, Rules: iptables.New(k.rules), VIPs: vips, Flows: conntrack.New(k.flows), Checks: r.checks,
			Servers: ipvs.New(k.servers, ipvs.Config{Limits: ipvs.DefaultLimits, Owned: owned, Bound: bound, Now: func() time.Time { return k.now }}),
		},
	})
	s := r.proxy.Sink()
	s.SetNode(&state.ClusterNode{Name: "node1", Zone: "zone-a", Eligible: true, Addresses: []netip.Addr{addr("192.0.2.11"), addr("2001:db8:2::11")}})
	s.SetNode(&state.ClusterNode{Name: "node2", Zone: "zone-b", Eligible: true, Addresses: []netip.Addr{addr("192.0.2.12"), addr("2001:db8:2::12")}})
	s.SetAddresses([]netip.Addr{addr("192.0.2.11"), addr("2001:db8:2::11")})
	return r
}

// settle runs turns until nothing is due, and returns the operations done and
// the error of the last pass.
func (r *rig) settle() (operations int, err error) {
	r.passes = nil
	for range 100 {
		if r.proxy.turn(context.Background()) > 0 {
			break
		}
	}
	for _, p := range r.passes {
		for _, n := range p.Done {
			operations += n
		}
		err = p.Err
	}
	return operations, err
}

// again compares everything once more.
func (r *rig) again() (int, error) {
	r.proxy.schedule.whole = true
	r.proxy.schedule.retryAt = time.Time{}
	r.proxy.rulesDue = true
	return r.settle()
}

func (r *rig) mustSettle(t *testing.T) int {
	t.Helper()
	n, err := r.settle()
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// mustRest fails unless a second look finds everything as wanted.
func (r *rig) mustRest(t *testing.T) {
	t.Helper()
	n, err := r.again()
	if n != 0 || err != nil {
		t.Errorf("a second look: %d operations, %v", n, err)
	}
}

// state prints the whole node in the tools' own formats.
func (k *kernel) state() string {
	return strings.Join([]string{
		"# ipvsadm -Sn", k.servers.Save(),
		"# ip addr show dev " + vip.DefaultDevice, k.vips.Show(vip.DefaultDevice),
		"# ipset save", k.sets.Save(),
		"# iptables-save", k.rules.Save(state.IPv4),
		"# ip6tables-save", k.rules.Save(state.IPv6),
	}, "\n")
}

// oneInTen returns a fault that strikes one call in ten, the same ones for the
// same seed.
func oneInTen(seed uint64) func(string) error {
	random := rand.New(rand.NewPCG(seed, 1))
	return func(call string) error {
		if random.IntN(10) == 0 {
			return errors.New("injected fault in " + call)
		}
		return nil
	}
}
