package proxy

import (
	"context"
	"fmt"
	"net/netip"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// BenchmarkOneEndpoint is the cost of one endpoint that comes and goes among
// many Services; it must not depend on their number.
func BenchmarkOneEndpoint(b *testing.B) {
	for _, services := range []int{100, 1000, 10000} {
		b.Run(fmt.Sprint(services), func(b *testing.B) { oneEndpoint(b, services) })
	}
}

func oneEndpoint(b *testing.B, services int) {
	k := newKernel()
	r := k.start(testOptions())
	for i := range services {
		r.proxy.Sink().SetService(manyService(i))
		r.proxy.Sink().SetSlice(manySlice(i, 10))
	}
	if _, err := r.settle(); err != nil {
		b.Fatal(err)
	}
	k.servers.Writes, k.servers.Reads = 0, 0
	b.ResetTimer()
	for n := range b.N {
		r.proxy.Sink().SetSlice(manySlice(7, 10+n%2))
		r.proxy.turn(context.Background())
	}
	b.ReportMetric(float64(k.servers.Writes)/float64(b.N), "writes/op")
	b.ReportMetric(float64(k.servers.Reads)/float64(b.N), "dumps/op")
}

// TestOneEndpointAmongMany counts: one request, no dump, no process.
func TestOneEndpointAmongMany(t *testing.T) {
	k := newKernel()
	r := k.start(testOptions())
	for i := range 300 {
		r.proxy.Sink().SetService(manyService(i))
		r.proxy.Sink().SetSlice(manySlice(i, 10))
	}
	r.mustSettle(t)
	k.servers.Writes, k.servers.Reads, k.rules.Calls = 0, 0, 0
	r.proxy.Sink().SetSlice(manySlice(7, 11))
	if n := r.mustSettle(t); n != 1 || k.servers.Writes != 1 || k.servers.Reads != 0 || k.rules.Calls != 0 {
		t.Errorf("%d operations, %d IPVS writes, %d dumps, %d processes", n, k.servers.Writes, k.servers.Reads, k.rules.Calls)
	}
}

func manyService(i int) *state.Service {
	return &state.Service{
		Name: state.Name{Namespace: "many", Name: fmt.Sprint(i)}, UID: fmt.Sprint(i), Created: time.Unix(1, 0), Type: "ClusterIP",
		ClusterIPs: []string{netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)}).String()},
		Ports:      []state.ServicePort{{Name: "http", Protocol: "TCP", Port: 80}},
	}
}

func manySlice(i, endpoints int) *state.Slice {
	name := state.Name{Namespace: "many", Name: fmt.Sprint(i)}
	s := &state.Slice{Name: name, Service: name, Family: state.IPv4, Ports: []state.SlicePort{{Name: "http", Protocol: state.TCP, Port: 8080}}}
	for n := range endpoints {
		s.Endpoints = append(s.Endpoints, state.Endpoint{
			Addr: netip.AddrFrom4([4]byte{10, byte(100 + n), byte(i >> 8), byte(i)}), Node: "node2", Ready: true, Serving: true,
		})
	}
	return s
}
