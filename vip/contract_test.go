package vip

import (
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const device = DefaultDevice

// ground is a kernel under the contract, with what others do to it.
type ground struct {
	kernel
	// put makes a device with addresses of scope global.
	put func(t *testing.T, device, kind string, addresses ...string)
	// show prints the device's addresses as Fake.Show does.
	show func(t *testing.T) string
}

// contract is what the fake and the real kernel have in common.
var contract = map[string]func(*testing.T, ground){
	"both families are bound and unbound":       bothFamilies,
	"many addresses come back":                  manyAddresses,
	"what is there or gone is success":          success,
	"an earlier proxy's addresses are kept":     earlierProxy,
	"a surplus address goes whatever its bits":  otherBits,
	"link-local addresses are the kernel's":     linkLocal,
	"a device of another kind is an error":      otherKind,
	"remove deletes the device":                 remove,
	"the probe leaves things as they are":       probe,
	"a device that vanished is ENODEV":          vanished,
	"an address that is not there is not found": absent,
}

func TestContractFake(t *testing.T) {
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			f := NewFake()
			test(t, ground{
				kernel: f,
				put: func(_ *testing.T, device, kind string, addresses ...string) {
					f.Put(device, kind, prefixes(addresses)...)
				},
				show: func(*testing.T) string { return f.Show(device) },
			})
		})
	}
}

func TestContractKernel(t *testing.T) {
	if os.Getenv("KUBE_IPVS_KERNEL") != "1" {
		t.Skip("KUBE_IPVS_KERNEL=1 is not set: this test changes the devices of its network namespace")
	}
	for name, test := range contract {
		t.Run(name, func(t *testing.T) {
			k, err := open()
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(k.close)
			t.Cleanup(func() { _ = exec.Command("ip", "link", "del", device).Run() })
			test(t, ground{k, putReal, showReal})
		})
	}
}

func putReal(t *testing.T, device, kind string, addresses ...string) {
	ip(t, "link", "add", device, "type", kind)
	for _, a := range addresses {
		ip(t, "addr", "add", a, "dev", device)
	}
}

func ip(t *testing.T, args ...string) string {
	t.Helper()
	out, err := exec.Command("ip", args...).CombinedOutput()
	if err != nil {
		t.Fatalf("ip %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return string(out)
}

// showReal reduces what the ip program prints to what Fake.Show prints.
func showReal(t *testing.T) string {
	t.Helper()
	if err := exec.Command("ip", "link", "show", device).Run(); err != nil {
		return fmt.Sprintf("Device %q does not exist.\n", device)
	}
	var out []string
	for line := range strings.Lines(ip(t, "-o", "addr", "show", "dev", device)) {
		line, _, _ = strings.Cut(line, `\`)
		fields := strings.Fields(line)[1:]
		text := strings.Join(fields, " ")
		out = append(out, strings.TrimSuffix(text, " "+device)+"\n") // IPv4's label
	}
	slices.SortFunc(out, func(a, b string) int {
		x, y := netip.MustParsePrefix(strings.Fields(a)[2]), netip.MustParsePrefix(strings.Fields(b)[2])
		return x.Addr().Compare(y.Addr())
	})
	return strings.Join(out, "")
}

func prefixes(texts []string) []netip.Prefix {
	out := make([]netip.Prefix, len(texts))
	for i, s := range texts {
		out[i] = netip.MustParsePrefix(s)
	}
	return out
}

func node(addresses ...string) *state.Node {
	n := state.NewNode()
	for _, a := range addresses {
		n.Addresses[netip.MustParseAddr(a)] = struct{}{}
	}
	return n
}

func all() *state.Change { return &state.Change{All: true} }

// settle brings the kernel to the wanted state and asserts that nothing is
// left to do, neither for this Table nor for one without memory.
func settle(t *testing.T, k kernel, want *state.Node) []string {
	t.Helper()
	table := New(device, k)
	done := mustSync(t, table, want)
	for _, again := range []*Table{table, New(device, k)} {
		if extra := mustSync(t, again, want); len(extra) > 0 {
			t.Errorf("the second sync did something: %q", extra)
		}
		if len(again.Addresses()) != len(want.Addresses) {
			t.Errorf("%d addresses are bound, want %d", len(again.Addresses()), len(want.Addresses))
		}
	}
	return done
}

func mustSync(t *testing.T, table *Table, want *state.Node) []string {
	t.Helper()
	if err := table.Read(t.Context()); err != nil {
		t.Fatal(err)
	}
	ensured, err := table.Ensure(t.Context(), want, all())
	if err != nil {
		t.Fatal(err)
	}
	pruned, err := table.Prune(t.Context(), want, all())
	if err != nil {
		t.Fatal(err)
	}
	return texts(append(ensured, pruned...))
}

func texts(ops []state.Op) []string {
	var out []string
	for _, o := range ops {
		out = append(out, o.String())
	}
	return out
}

func expect(t *testing.T, got []string, want ...string) {
	t.Helper()
	if !slices.Equal(got, want) {
		t.Errorf("got:\n  %s\nwant:\n  %s", strings.Join(got, "\n  "), strings.Join(want, "\n  "))
	}
}

func (g ground) expect(t *testing.T, want ...string) {
	t.Helper()
	text := ""
	for _, line := range want {
		text += line + "\n"
	}
	if got := g.show(t); got != text {
		t.Errorf("the device holds\n%s\nwant\n%s", got, text)
	}
}

func bothFamilies(t *testing.T, g ground) {
	expect(t, settle(t, g, node("10.96.0.1", "10.96.0.10", "fd00::1")),
		"ip link add kube-ipvs0 type dummy",
		"ip addr add 10.96.0.1/32 dev kube-ipvs0 scope host",
		"ip addr add 10.96.0.10/32 dev kube-ipvs0 scope host",
		"ip addr add fd00::1/128 dev kube-ipvs0 preferred_lft 0 nodad noprefixroute")
	g.expect(t,
		"kube-ipvs0 inet 10.96.0.1/32 scope host",
		"kube-ipvs0 inet 10.96.0.10/32 scope host",
		"kube-ipvs0 inet6 fd00::1/128 scope global nodad deprecated noprefixroute")
	expect(t, settle(t, g, node("10.96.0.10", "fd00::2")),
		"ip addr add fd00::2/128 dev kube-ipvs0 preferred_lft 0 nodad noprefixroute",
		"ip addr del 10.96.0.1/32 dev kube-ipvs0",
		"ip addr del fd00::1/128 dev kube-ipvs0")
	settle(t, g, node())
	g.expect(t)
}

func manyAddresses(t *testing.T, g ground) {
	want := node()
	a4, a6 := netip.MustParseAddr("10.96.0.1"), netip.MustParseAddr("fd00::1")
	for range 300 {
		want.Addresses[a4], want.Addresses[a6] = struct{}{}, struct{}{}
		a4, a6 = a4.Next(), a6.Next()
	}
	settle(t, g, want)
}

func success(t *testing.T, g ground) {
	first, second := New(device, g), New(device, g)
	for range 2 {
		for _, want := range []*state.Node{node("10.96.0.1", "fd00::1"), node()} {
			for _, table := range []*Table{first, second} {
				if _, err := table.Ensure(t.Context(), want, all()); err != nil {
					t.Error(err)
				}
			}
			for _, table := range []*Table{first, second} {
				if _, err := table.Prune(t.Context(), want, all()); err != nil {
					t.Error(err)
				}
			}
		}
	}
}

func earlierProxy(t *testing.T, g ground) {
	g.put(t, device, "dummy", "10.96.0.1/32", "10.96.0.2/32", "fd00::1/128", "fd00::2/128")
	expect(t, settle(t, g, node("10.96.0.1", "fd00::1")),
		"ip addr replace fd00::1/128 dev kube-ipvs0 preferred_lft 0 nodad noprefixroute",
		"ip addr del 10.96.0.2/32 dev kube-ipvs0",
		"ip addr del fd00::2/128 dev kube-ipvs0")
	g.expect(t,
		"kube-ipvs0 inet 10.96.0.1/32 scope global",
		"kube-ipvs0 inet6 fd00::1/128 scope global nodad deprecated noprefixroute")
}

func otherBits(t *testing.T, g ground) {
	g.put(t, device, "dummy", "10.96.0.1/24", "fd00::1/64", "10.96.0.2/24", "fd00::2/64")
	expect(t, settle(t, g, node("10.96.0.1", "fd00::1")),
		"ip addr replace fd00::1/64 dev kube-ipvs0 preferred_lft 0 nodad noprefixroute",
		"ip addr del 10.96.0.2/24 dev kube-ipvs0",
		"ip addr del fd00::2/64 dev kube-ipvs0")
}

func linkLocal(t *testing.T, g ground) {
	g.put(t, device, "dummy", "fe80::1/64", "fd00::1/128")
	expect(t, settle(t, g, node()), "ip addr del fd00::1/128 dev kube-ipvs0")
	g.expect(t, "kube-ipvs0 inet6 fe80::1/64 scope link")
}

func otherKind(t *testing.T, g ground) {
	g.put(t, device, "bridge", "10.96.0.1/32")
	table := New(device, g)
	_, ensure := table.Ensure(t.Context(), node("10.96.0.2"), all())
	_, rm := table.Remove(t.Context())
	for call, err := range map[string]error{
		"read": table.Read(t.Context()), "ensure": ensure, "remove": rm, "probe": table.Probe(),
	} {
		if err == nil || !strings.Contains(err.Error(), `kube-ipvs0 is of type "bridge"`) {
			t.Errorf("%s: got %v", call, err)
		}
	}
	g.expect(t, "kube-ipvs0 inet 10.96.0.1/32 scope global")
}

func remove(t *testing.T, g ground) {
	settle(t, g, node("10.96.0.1"))
	table := New(device, g)
	done, err := table.Remove(t.Context())
	if err != nil {
		t.Error(err)
	}
	expect(t, texts(done), "ip link del kube-ipvs0")
	if done, err := table.Remove(t.Context()); err != nil || len(done) > 0 {
		t.Errorf("got %q, %v", texts(done), err)
	}
	g.expect(t, `Device "kube-ipvs0" does not exist.`)
}

func probe(t *testing.T, g ground) {
	for range 2 {
		if err := New(device, g).Probe(); err != nil {
			t.Error(err)
		}
	}
	g.expect(t, `Device "kube-ipvs0" does not exist.`)
	settle(t, g, node("10.96.0.1"))
	if err := New(device, g).Probe(); err != nil {
		t.Error(err)
	}
	g.expect(t, "kube-ipvs0 inet 10.96.0.1/32 scope host")
}

func vanished(t *testing.T, g ground) {
	table := New(device, g)
	mustSync(t, table, node("10.96.0.1"))
	if err := g.remove(table.index); err != nil {
		t.Fatal(err)
	}
	_, err := table.Ensure(t.Context(), node("10.96.0.1", "10.96.0.2"), all())
	if !errors.Is(err, unix.ENODEV) || !strings.Contains(err.Error(), "10.96.0.2/32") {
		t.Errorf("got %v, want ENODEV for 10.96.0.2/32", err)
	}
	if _, err := table.Prune(t.Context(), node(), all()); err != nil {
		t.Errorf("got %v: what is gone with its device is gone", err)
	}
	settle(t, g, node("10.96.0.1", "10.96.0.2"))
}

func absent(t *testing.T, g ground) {
	settle(t, g, node("10.96.0.1"))
	index, _, err := g.find(device)
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range []string{"10.96.0.2", "fd00::1"} {
		b := bindingOf(netip.MustParseAddr(a))
		if err := g.del(index, b); !errors.Is(err, unix.EADDRNOTAVAIL) {
			t.Errorf("del %s: got %v, want EADDRNOTAVAIL", b, err)
		}
		if err := g.add(index, b); err != nil {
			t.Error(err)
		}
		if err := g.add(index, b); !errors.Is(err, unix.EEXIST) {
			t.Errorf("add %s: got %v, want EEXIST", b, err)
		}
	}
	if err := g.create(device); !errors.Is(err, unix.EEXIST) {
		t.Errorf("create: got %v, want EEXIST", err)
	}
}
