package proxy

import (
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/vip"
)

// world is a random cluster.
type world struct {
	random   *rand.Rand
	services map[int]*state.Service
	slices   map[int]*state.Slice
	zone     string
	own      []netip.Addr
}

func newWorld(seed uint64) *world {
	return &world{
		random: rand.New(rand.NewPCG(seed, 7)), services: map[int]*state.Service{}, slices: map[int]*state.Slice{},
		zone: "zone-a", own: []netip.Addr{addr("192.0.2.11"), addr("2001:db8:2::11")},
	}
}

func (w *world) flip() bool { return w.random.IntN(2) == 0 }

// pick returns one of a list.
func pick[T any](w *world, list ...T) T { return list[w.random.IntN(len(list))] }

// step changes one thing and tells the proxy.
func (w *world) step(sink state.Sink) string {
	i := w.random.IntN(6)
	switch w.random.IntN(10) {
	case 0:
		delete(w.services, i)
		sink.DeleteService(name(i))
		return fmt.Sprint("delete service ", i)
	case 1:
		delete(w.slices, i)
		sink.DeleteSlice(name(i))
		return fmt.Sprint("delete slice ", i)
	case 2:
		w.zone = pick(w, "zone-a", "zone-b", "")
	case 3:
		w.own = []netip.Addr{addr("192.0.2.11"), addr("2001:db8:2::11")}
		if w.flip() {
			w.own = append(w.own, addr("203.0.113.1"))
		}
	case 4, 5, 6:
		w.services[i] = w.service(i)
	default:
		w.slices[i] = w.slice(i)
	}
	w.tell(sink)
	return fmt.Sprint("change ", i)
}

// tell hands over everything there is.
func (w *world) tell(sink state.Sink) {
	sink.SetNode(&state.ClusterNode{Name: "node1", Zone: w.zone, Eligible: true, Addresses: []netip.Addr{addr("192.0.2.11")}})
	sink.SetAddresses(w.own)
	for _, s := range w.services {
		sink.SetService(s)
	}
	for _, s := range w.slices {
		sink.SetSlice(s)
	}
}

func name(i int) state.Name { return state.Name{Namespace: "ns", Name: fmt.Sprint("s", i)} }

// service makes a Service whose addresses collide with those of others now and
// then, and which is not always valid.
func (w *world) service(i int) *state.Service {
	s := &state.Service{
		Name: name(i), UID: fmt.Sprint(i), Created: time.Unix(int64(i%3), 0),
		Type:       pick(w, "ClusterIP", "NodePort", "LoadBalancer", "ExternalName"),
		ClusterIPs: pick(w, []string{fmt.Sprint("10.96.0.", i+1)}, []string{fmt.Sprint("10.96.0.", i+1), fmt.Sprint("fd00:96::", i+1)}, []string{"None"}),
		Scheduler:  pick(w, "", "", "lc", "mh", "nonsense"),
	}
	s.InternalLocal, s.ExternalLocal = w.flip(), w.flip()
	if w.flip() {
		s.ExternalIPs = []string{pick(w, "203.0.113.1", "203.0.113.2", "192.0.2.12", "rubbish", "2001:db8:113::1")}
	}
	if w.flip() {
		s.Ingress = []state.Ingress{{IP: pick(w, "203.0.113.1", "203.0.113.3", "2001:db8:113::1"), IPMode: pick(w, "", "VIP", "Proxy")}}
		s.SourceRanges = pick(w, nil, []string{"10.0.0.0/8"}, []string{"0.0.0.0/0"}, []string{"192.0.2.0/24", "2001:db8::/32"})
		s.HealthCheckPort = uint16(pick(w, 0, 31111))
	}
	if w.flip() {
		s.AffinitySeconds = pick(w, uint32(60), 10800)
	}
	for range w.random.IntN(3) {
		p := state.ServicePort{Name: pick(w, "a", "b"), Protocol: pick(w, "TCP", "UDP", "SCTP"), Port: int32(pick(w, 80, 81, 70000))}
		if w.flip() {
			p.NodePort = int32(30000 + w.random.IntN(4))
		}
		s.Ports = append(s.Ports, p)
	}
	return s
}

func (w *world) slice(i int) *state.Slice {
	s := &state.Slice{Name: name(i), Service: name(w.random.IntN(6)), Family: pick(w, state.IPv4, state.IPv4, state.IPv6)}
	for _, n := range []string{"a", "b"} {
		s.Ports = append(s.Ports, state.SlicePort{Name: n, Protocol: pick(w, state.TCP, state.UDP, state.SCTP), Port: uint16(pick(w, 8080, 8081))})
	}
	for n := range w.random.IntN(4) {
		e := state.Endpoint{Node: pick(w, "node1", "node2", ""), Ready: w.flip(), Serving: w.flip(), Terminating: w.flip(), Addr: addr(fmt.Sprint("10.244.1.", n+1))}
		if s.Family == state.IPv6 {
			e.Addr = addr(fmt.Sprint("fd00:244::", n+1))
		}
		if w.flip() {
			e.Zones = []string{pick(w, "zone-a", "zone-b")}
		}
		s.Endpoints = append(s.Endpoints, e)
	}
	return s
}

// TestRandomSequences holds that any sequence of changes, of restarts and of
// failing kernel calls ends in the state that a fresh start computes, that no
// step between breaks the order of things, and that what belongs to others is
// not touched.
func TestRandomSequences(t *testing.T) {
	for seed := range uint64(40) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { randomSequence(t, seed) })
	}
}

func randomSequence(t *testing.T, seed uint64) {
	w, k := newWorld(seed), newKernel()
	foreign := state.ServerKey{Addr: addr("192.0.2.200"), Protocol: state.TCP, Port: 6443}
	if err := k.servers.AddServer(ipvs.Server{Key: foreign, Scheduler: "wlc"}); err != nil {
		t.Fatal(err)
	}
	r := k.start(testOptions())
	faults := oneInTen(seed)
	var steps []string
	for range 30 {
		steps = append(steps, w.step(r.proxy.Sink()))
		if w.random.IntN(8) == 0 {
			steps = append(steps, "restart")
			r = k.start(testOptions())
			w.tell(r.proxy.Sink())
		}
		faulty := w.random.IntN(3) == 0
		k.watch(t, func(call string) error {
			if faulty {
				return faults(call)
			}
			return nil
		})
		_, err := r.settle()
		if faulty {
			k.watch(t, nil)
			_, err = r.again()
		}
		if err != nil {
			t.Fatalf("%v: %v", steps, err)
		}
		r.mustRest(t)
		if got, want := k.state(), w.fresh(t, foreign).state(); got != want {
			t.Fatalf("seed %d after %v: want\n%s\ngot\n%s", seed, steps, want, got)
		}
	}
}

// fresh computes the state of a kernel on which a proxy starts just now.
func (w *world) fresh(t *testing.T, foreign state.ServerKey) *kernel {
	t.Helper()
	k := newKernel()
	if err := k.servers.AddServer(ipvs.Server{Key: foreign, Scheduler: "wlc"}); err != nil {
		t.Fatal(err)
	}
	r := k.start(testOptions())
	w.tell(r.proxy.Sink())
	r.mustSettle(t)
	return k
}

// watch checks the invariants around every IPVS call and lets calls fail.
func (k *kernel) watch(t *testing.T, fault func(string) error) {
	if fault == nil {
		k.sets.Fault, k.vips.Fault, k.rules.Fault = nil, nil, nil
	} else {
		k.sets.Fault, k.vips.Fault, k.rules.Fault = fault, fault, fault
	}
	k.servers.Fault = func(call string) error {
		k.checkOrder(t, call)
		if fault == nil {
			return nil
		}
		return fault(call)
	}
}

// checkOrder holds that each virtual server of ours stands in the ledger, and
// that each bound address is guarded and has a virtual server.
func (k *kernel) checkOrder(t *testing.T, call string) {
	sets, servers := k.sets.Save(), k.servers.Save()
	for line := range strings.Lines(servers) {
		fields := strings.Fields(line)
		if fields[0] != "-A" || fields[1] == "-f" || fields[2] == "192.0.2.200:6443" {
			continue
		}
		at := netip.MustParseAddrPort(fields[2])
		proto := map[string]string{"-t": "tcp", "-u": "udp", "--sctp-service": "sctp"}[fields[1]]
		if entry := fmt.Sprintf("-SERVICE %s,%s:%d\n", at.Addr(), proto, at.Port()); !strings.Contains(strings.ReplaceAll(sets, "KIPVS6", "KIPVS"), entry) {
			t.Errorf("before %s: virtual server %s is not in the ledger", call, at)
		}
	}
	for line := range strings.Lines(k.vips.Show(vip.DefaultDevice)) {
		prefix, err := netip.ParsePrefix(strings.Fields(line)[2])
		if err != nil {
			continue // the device is not there
		}
		bound := prefix.Addr()
		if !strings.Contains(sets, fmt.Sprintf("-ADDRESS %s\n", bound)) {
			t.Errorf("before %s: address %s is bound without its guard", call, bound)
		}
		if !strings.Contains(servers, " "+bound.String()+":") && !strings.Contains(servers, " ["+bound.String()+"]:") {
			t.Errorf("before %s: address %s is bound without a virtual server", call, bound)
		}
	}
}
