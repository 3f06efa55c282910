package proxy

import (
	"errors"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
)

var web = state.Name{Namespace: "default", Name: "web"}

// service is a Service of each kind of address.
func service() *state.Service {
	return &state.Service{
		Name: web, UID: "1", Created: time.Unix(1, 0), Type: "LoadBalancer",
		ClusterIPs: []string{"10.96.0.101"}, ExternalIPs: []string{"203.0.113.2"},
		Ingress: []state.Ingress{{IP: "203.0.113.1"}},
		Ports:   []state.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, NodePort: 30080}},
	}
}

// slice is a slice of web; a name ending in "!" is an endpoint of this node,
// one ending in "?" terminates.
func slice(endpoints ...string) *state.Slice {
	s := &state.Slice{Name: state.Name{Namespace: "default", Name: "web-1"}, Service: web, Family: state.IPv4,
		Ports: []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}}}
	for _, text := range endpoints {
		e := state.Endpoint{Node: "node2", Ready: true, Serving: true}
		text, here := strings.CutSuffix(text, "!")
		if here {
			e.Node = "node1"
		}
		text, e.Terminating = strings.CutSuffix(text, "?")
		e.Ready = !e.Terminating
		e.Addr = netip.MustParseAddr(text)
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

func TestEverythingIsProgrammedOnce(t *testing.T) {
	r := settled(t, "10.244.1.11!", "10.244.2.11")
	k := r.kernel
	for _, want := range []string{
		"-A -t 10.96.0.101:80 -s rr", "-a -t 10.96.0.101:80 -r 10.244.2.11:8080 -m -w 1",
		"-A -t 203.0.113.1:80 -s rr", "-A -t 203.0.113.2:80 -s rr", "-A -t 192.0.2.11:30080 -s rr",
		"add KIPVS-EXTERNAL 192.0.2.11,tcp:30080", "add KIPVS-CLUSTER 10.96.0.101,tcp:80",
		"add KIPVS-HAIRPIN 10.244.1.11,tcp:8080,10.244.1.11", "203.0.113.1/32",
	} {
		if !strings.Contains(k.state(), want) {
			t.Errorf("no %q in\n%s", want, k.state())
		}
	}
	r.mustRest(t)
}

func TestS92RestartWritesNothing(t *testing.T) {
	k := newKernel()
	for _, when := range []string{"first", "second"} {
		r := k.start(testOptions())
		r.proxy.Sink().SetService(service())
		r.proxy.Sink().SetSlice(slice("10.244.1.11!"))
		if n := r.mustSettle(t); (n == 0) != (when == "second") {
			t.Errorf("%s start: %d operations", when, n)
		}
	}
}

func TestRemovedServiceLeavesNothing(t *testing.T) {
	k := newKernel()
	r := k.start(testOptions())
	r.mustSettle(t)
	before := k.state()
	r.proxy.Sink().SetService(service())
	r.proxy.Sink().SetSlice(slice("10.244.1.11!"))
	r.mustSettle(t)
	r.proxy.Sink().DeleteService(web)
	r.proxy.Sink().DeleteSlice(slice().Name)
	r.mustSettle(t)
	if after := k.state(); after != before {
		t.Errorf("want\n%s\ngot\n%s", before, after)
	}
	r.mustRest(t)
}

func TestDeletedServiceLetsConnectionsEnd(t *testing.T) {
	r := settled(t, "10.244.1.11!")
	k := r.kernel
	key := state.ServerKey{Addr: addr("10.96.0.101"), Protocol: state.TCP, Port: 80}
	at := netip.MustParseAddrPort("10.244.1.11:8080")
	k.servers.Connections(key, at, 1, 0)

	r.proxy.Sink().DeleteService(web)
	r.proxy.Sink().DeleteSlice(slice().Name)
	r.mustSettle(t)
	k.has(t, "-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 0", "add KIPVS-REFUSE 10.96.0.101,tcp:80",
		"add KIPVS-SERVICE 10.96.0.101,tcp:80", "10.96.0.101/32")
	k.lacks(t, "203.0.113.1", "192.0.2.11:30080")
	r.mustRest(t)

	// The same after a restart, from the kernel alone.
	r = k.start(testOptions())
	r.mustSettle(t)
	k.has(t, "-a -t 10.96.0.101:80 -r 10.244.1.11:8080 -m -w 0", "add KIPVS-REFUSE 10.96.0.101,tcp:80", "10.96.0.101/32")

	k.now = k.now.Add(time.Minute)
	r.mustSettle(t)
	k.lacks(t, "10.96.0.101")
	r.mustRest(t)
}

func TestRetiredKeyIsTakenOver(t *testing.T) {
	r := settled(t, "10.244.1.11!")
	k := r.kernel
	want := k.state()
	k.servers.Connections(state.ServerKey{Addr: addr("10.96.0.101"), Protocol: state.TCP, Port: 80}, netip.MustParseAddrPort("10.244.1.11:8080"), 1, 0)
	r.proxy.Sink().DeleteService(web)
	r.mustSettle(t)
	r.proxy.Sink().SetService(service())
	r.mustSettle(t)
	if got := k.state(); got != want {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
}

func TestS20OlderServiceKeepsTheAddress(t *testing.T) {
	k := newKernel()
	r := k.start(testOptions())
	older := service()
	younger := service()
	younger.Name.Name, younger.Created, younger.ClusterIPs, younger.UID = "a-younger", time.Unix(2, 0), []string{"10.96.0.102"}, "2"
	younger.Type, younger.Ingress, younger.Ports[0].NodePort = "ClusterIP", nil, 0
	s := slice("10.244.2.12")
	s.Name.Name, s.Service = "younger-1", younger.Name
	for _, step := range []func(){
		func() { r.proxy.Sink().SetService(younger); r.proxy.Sink().SetSlice(s) },
		func() { r.proxy.Sink().SetService(older); r.proxy.Sink().SetSlice(slice("10.244.2.11")) },
	} {
		step()
		r.mustSettle(t)
	}
	k.has(t, "-a -t 203.0.113.2:80 -r 10.244.2.11:8080")
	if p := r.problems[younger.Name]; len(p) != 1 || p[0].Reason != "AddressClaimedByOther" {
		t.Errorf("problems of the younger: %v", r.problems)
	}
	r.proxy.Sink().DeleteService(web)
	r.mustSettle(t)
	k.has(t, "-a -t 203.0.113.2:80 -r 10.244.2.12:8080")
	if len(r.problems) != 0 {
		t.Errorf("problems: %v", r.problems)
	}
	r.mustRest(t)
}

func TestSomebodyElsesVirtualServerIsNoFailure(t *testing.T) {
	k := newKernel()
	key := state.ServerKey{Addr: addr("192.0.2.11"), Protocol: state.TCP, Port: 30080}
	theirs := ipvs.Real{At: netip.MustParseAddrPort("192.0.2.99:1"), Weight: 7}
	if err := errors.Join(k.servers.AddServer(ipvs.Server{Key: key, Scheduler: "wlc"}), k.servers.AddReal(key, theirs)); err != nil {
		t.Fatal(err)
	}
	r := k.start(testOptions())
	r.proxy.Sink().SetService(service())
	r.proxy.Sink().SetSlice(slice("10.244.2.11"))
	r.mustSettle(t)
	k.has(t, "-A -t 192.0.2.11:30080 -s wlc\n-a -t 192.0.2.11:30080 -r 192.0.2.99:1 -m -w 7\n", "-A -t 10.96.0.101:80 -s rr")
	if p := r.problems[web]; len(p) != 1 || p[0].Reason != "VirtualServerOfAnotherProgram" {
		t.Errorf("problems: %v", r.problems)
	}
	r.mustRest(t)

	// Once it is gone, the Service takes its place.
	if err := k.servers.DelServer(key); err != nil {
		t.Fatal(err)
	}
	k.now = k.now.Add(lookEvery)
	r.mustSettle(t)
	k.has(t, "-a -t 192.0.2.11:30080 -r 10.244.2.11:8080 -m -w 1")
	if len(r.problems) != 0 {
		t.Errorf("problems: %v", r.problems)
	}
}

func TestS93Repair(t *testing.T) {
	for name, damage := range map[string]func(*kernel){
		"virtual servers cleared": func(k *kernel) { k.servers.Clear() },
		"sets flushed":            func(k *kernel) { k.sets.Flush() },
		"device deleted":          func(k *kernel) { k.vips.Delete("kube-ipvs0") },
	} {
		t.Run(name, func(t *testing.T) {
			r := settled(t, "10.244.1.11!")
			k := r.kernel
			want := k.state()
			damage(k)
			k.now = k.now.Add(lookEvery)
			r.mustSettle(t)
			if got := k.state(); got != want {
				t.Errorf("want\n%s\ngot\n%s", want, got)
			}
		})
	}
}

func TestSameStateOnceFaultsStop(t *testing.T) {
	clean := newKernel()
	r := clean.start(testOptions())
	r.proxy.Sink().SetService(service())
	r.proxy.Sink().SetSlice(slice("10.244.1.11!", "10.244.2.11"))
	r.mustSettle(t)

	for seed := range uint64(20) {
		k := newKernel()
		k.sets.Fault, k.vips.Fault, k.servers.Fault, k.rules.Fault = oneInTen(seed), oneInTen(seed+1), oneInTen(seed+2), oneInTen(seed+3)
		r := k.start(testOptions())
		r.proxy.Sink().SetService(service())
		for _, endpoints := range [][]string{{"10.244.1.11!"}, {}, {"10.244.2.11"}, {"10.244.1.11!", "10.244.2.11"}} {
			r.proxy.Sink().SetSlice(slice(endpoints...))
			for range 3 {
				k.now = k.now.Add(time.Minute)
				r.settle()
			}
		}
		k.sets.Fault, k.vips.Fault, k.servers.Fault, k.rules.Fault = nil, nil, nil, nil
		if _, err := r.again(); err != nil {
			t.Fatal(err)
		}
		r.mustRest(t)
		if got, want := k.state(), clean.state(); got != want {
			t.Errorf("seed %d: want\n%s\ngot\n%s", seed, want, got)
		}
	}
}

func (k *kernel) has(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if !strings.Contains(k.state(), text) {
			t.Errorf("no %q in\n%s", text, k.state())
		}
	}
}

func (k *kernel) lacks(t *testing.T, texts ...string) {
	t.Helper()
	for _, text := range texts {
		if strings.Contains(k.state(), text) {
			t.Errorf("%q in\n%s", text, k.state())
		}
	}
}

func TestDeletedDeviceIsMendedByTheEventAlone(t *testing.T) {
	r := settled(t, "10.244.1.11!")
	k := r.kernel
	want := k.state()
	k.vips.Delete("kube-ipvs0")
	r.proxy.Sink().Disturbed()
	r.mustSettle(t)
	if got := k.state(); got != want {
		t.Errorf("want\n%s\ngot\n%s", want, got)
	}
	if len(r.passes) != 1 || r.passes[0].Whole {
		t.Errorf("passes: %+v", r.passes)
	}
}

// TestNothingNewCostsNothing: a resync of the API's objects, the heartbeat of a
// Node and the echo of our own address changes.
func TestNothingNewCostsNothing(t *testing.T) {
	r := settled(t, "10.244.1.11!")
	k := r.kernel
	k.servers.Reads = 0
	r.proxy.Sink().SetService(service())
	r.proxy.Sink().SetSlice(slice("10.244.1.11!"))
	r.proxy.Sink().SetNode(&state.ClusterNode{Name: "node2", Zone: "zone-b", Eligible: true, Addresses: []netip.Addr{addr("192.0.2.12"), addr("2001:db8:2::12")}})
	if n := r.mustSettle(t); n != 0 || len(r.passes) != 0 || k.servers.Reads != 0 {
		t.Errorf("%d operations, %d passes, %d dumps", n, len(r.passes), k.servers.Reads)
	}
	r.proxy.Sink().Disturbed()
	if n := r.mustSettle(t); n != 0 || k.servers.Reads != 0 {
		t.Errorf("an echo: %d operations, %d dumps", n, k.servers.Reads)
	}
}
