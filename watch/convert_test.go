package watch

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/state"
)

var shop = metav1.ObjectMeta{Namespace: "shop", Name: "web"}

func TestConvertService(t *testing.T) {
	created := metav1.NewTime(time.Unix(1000, 0))
	name := state.Name{Namespace: "shop", Name: "web"}
	tests := map[string]struct {
		in    corev1.Service
		want  state.Service
		wrong int
	}{
		"everything": {
			in: corev1.Service{
				ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web", UID: "u", CreationTimestamp: created,
					Annotations: map[string]string{"kube-ipvs.io/scheduler": "mh"}},
				Spec: corev1.ServiceSpec{
					Type: "LoadBalancer", ClusterIP: "10.96.0.10", ClusterIPs: []string{"10.96.0.10", "fd00::10"},
					ExternalIPs: []string{"192.0.2.1"}, LoadBalancerSourceRanges: []string{"198.51.100.0/24"},
					InternalTrafficPolicy: new(corev1.ServiceInternalTrafficPolicyLocal), ExternalTrafficPolicy: "Local",
					SessionAffinity: "ClientIP", HealthCheckNodePort: 32000,
					Ports: []corev1.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, NodePort: 30080}},
				},
				Status: corev1.ServiceStatus{LoadBalancer: corev1.LoadBalancerStatus{Ingress: []corev1.LoadBalancerIngress{
					{IP: "203.0.113.1"}, {Hostname: "lb.example"}, {IP: "203.0.113.2", IPMode: new(corev1.LoadBalancerIPModeProxy)},
				}}},
			},
			want: state.Service{
				Name: name, UID: "u", Created: created.Time, Type: "LoadBalancer",
				ClusterIPs: []string{"10.96.0.10", "fd00::10"}, ExternalIPs: []string{"192.0.2.1"},
				Ingress:      []state.Ingress{{IP: "203.0.113.1"}, {IP: "203.0.113.2", IPMode: "Proxy"}},
				SourceRanges: []string{"198.51.100.0/24"}, InternalLocal: true, ExternalLocal: true,
				AffinitySeconds: 10800, HealthCheckPort: 32000, Scheduler: "mh",
				Ports: []state.ServicePort{{Name: "http", Protocol: "TCP", Port: 80, NodePort: 30080}},
			},
		},
		"clusterIP alone": {
			in:   corev1.Service{ObjectMeta: shop, Spec: corev1.ServiceSpec{ClusterIP: "10.96.0.10"}},
			want: state.Service{Name: name, ClusterIPs: []string{"10.96.0.10"}},
		},
		"affinity time-out": {
			in: corev1.Service{ObjectMeta: shop, Spec: corev1.ServiceSpec{SessionAffinity: "ClientIP",
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}}},
			want: state.Service{Name: name, AffinitySeconds: 60},
		},
		"affinity without sense": {
			in: corev1.Service{ObjectMeta: shop, Spec: corev1.ServiceSpec{SessionAffinity: "ClientIP",
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(-5))}}}},
			want: state.Service{Name: name, AffinitySeconds: 10800},
		},
		"a time-out without affinity": {
			in: corev1.Service{ObjectMeta: shop, Spec: corev1.ServiceSpec{SessionAffinity: "None",
				SessionAffinityConfig: &corev1.SessionAffinityConfig{ClientIP: &corev1.ClientIPConfig{TimeoutSeconds: new(int32(60))}}}},
			want: state.Service{Name: name},
		},
		"absurd ports": {
			in: corev1.Service{ObjectMeta: shop, Spec: corev1.ServiceSpec{HealthCheckNodePort: 70000,
				Ports: []corev1.ServicePort{{Port: -1, NodePort: 70000}}}},
			want:  state.Service{Name: name, Ports: []state.ServicePort{{Port: -1, NodePort: 70000}}},
			wrong: 1,
		},
		"nothing": {in: corev1.Service{}, want: state.Service{}},
	}
	for label, test := range tests {
		t.Run(label, func(t *testing.T) {
			stripService(&test.in)
			got, wrong := convertService(&test.in)
			if !reflect.DeepEqual(*got, test.want) {
				t.Errorf("got  %+v\nwant %+v", *got, test.want)
			}
			if len(wrong) != test.wrong {
				t.Errorf("problems %q, want %d", wrong, test.wrong)
			}
		})
	}
}

func endpointSlice(family discoveryv1.AddressType, endpoints ...discoveryv1.Endpoint) discoveryv1.EndpointSlice {
	return discoveryv1.EndpointSlice{
		ObjectMeta: metav1.ObjectMeta{Namespace: "shop", Name: "web-1",
			Labels: map[string]string{"kubernetes.io/service-name": "web"}},
		AddressType: family,
		Ports:       []discoveryv1.EndpointPort{{Name: new("http"), Port: new(int32(8080))}},
		Endpoints:   endpoints,
	}
}

func TestConvertSlice(t *testing.T) {
	const at = "2026-01-02T03:04:05.6Z"
	triggered, _ := time.Parse(time.RFC3339Nano, at)
	in := endpointSlice("IPv4",
		discoveryv1.Endpoint{Addresses: []string{"010.244.001.011", "10.244.1.99"}, NodeName: new("a"), Zone: new("z"),
			TargetRef: &corev1.ObjectReference{Kind: "Pod", Name: "web-x"},
			Hints: &discoveryv1.EndpointHints{ForZones: []discoveryv1.ForZone{{Name: "z1"}, {Name: "z2"}},
				ForNodes: []discoveryv1.ForNode{{Name: "a"}}}},
		discoveryv1.Endpoint{Addresses: []string{"10.244.1.12"}, Conditions: discoveryv1.EndpointConditions{
			Ready: new(false), Serving: new(false), Terminating: new(true)}},
		discoveryv1.Endpoint{},
	)
	in.Annotations = map[string]string{"endpoints.kubernetes.io/last-change-trigger-time": at}
	in.Ports = []discoveryv1.EndpointPort{
		{Name: new(""), Port: new(int32(80))},
		{Name: new("dns"), Port: new(int32(53)), Protocol: new(corev1.ProtocolUDP)},
		{Port: new(int32(81))}, {Name: new("no number")}, {Name: new("zero"), Port: new(int32(0))},
		{Name: new("big"), Port: new(int32(70000))}, {Name: new("negative"), Port: new(int32(-1))},
		{Name: new("odd"), Port: new(int32(1)), Protocol: new(corev1.Protocol("DCCP"))},
	}
	want := state.Slice{
		Name: state.Name{Namespace: "shop", Name: "web-1"}, Service: state.Name{Namespace: "shop", Name: "web"},
		Family: state.IPv4, Triggered: triggered,
		Ports: []state.SlicePort{{Protocol: state.TCP, Port: 80}, {Name: "dns", Protocol: state.UDP, Port: 53}},
		Endpoints: []state.Endpoint{
			{Addr: netip.MustParseAddr("10.244.1.11"), Node: "a", Pod: "web-x", Ready: true, Serving: true,
				Zones: []string{"z1", "z2"}, HintNodes: []string{"a"}},
			{Addr: netip.MustParseAddr("10.244.1.12"), Terminating: true},
		},
	}
	stripSlice(&in)
	got, wrong := convertSlice(&in)
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
	if len(wrong) != 3 {
		t.Errorf("problems %q, want the ports big, negative and odd", wrong)
	}
}

func TestConvertSliceEndpoints(t *testing.T) {
	at := func(addr string, terminating, ready bool) discoveryv1.Endpoint {
		return discoveryv1.Endpoint{Addresses: []string{addr},
			Conditions: discoveryv1.EndpointConditions{Ready: &ready, Terminating: &terminating}}
	}
	tests := map[string]struct {
		family    discoveryv1.AddressType
		endpoints []discoveryv1.Endpoint
		want      string // addresses, a terminating one with a leading minus
		wrong     string
	}{
		"IPv6":            {"IPv6", []discoveryv1.Endpoint{at("FD00:0:0::1", false, true)}, "fd00::1", ""},
		"not an address":  {"IPv4", []discoveryv1.Endpoint{at("10.0.0", false, true), at("", false, true), at("10.0.0.2", false, true)}, "10.0.0.2", `"10.0.0" is not`},
		"other family":    {"IPv4", []discoveryv1.Endpoint{at("fd00::1", false, true)}, "", "not of the family IPv4"},
		"mapped":          {"IPv4", []discoveryv1.Endpoint{at("::ffff:10.0.0.1", false, true)}, "10.0.0.1", ""},
		"mapped as IPv6":  {"IPv6", []discoveryv1.Endpoint{at("::ffff:10.0.0.1", false, true)}, "", "not of the family IPv6"},
		"zone":            {"IPv6", []discoveryv1.Endpoint{at("fe80::1%eth0", false, true)}, "", "is not an IP address"},
		"twice":           {"IPv4", []discoveryv1.Endpoint{at("10.0.0.1", false, true), at("10.0.0.1", false, true)}, "10.0.0.1", "occurs twice"},
		"successor after": {"IPv4", []discoveryv1.Endpoint{at("10.0.0.1", true, false), at("10.0.0.1", false, true)}, "10.0.0.1", ""},
		"successor first": {"IPv4", []discoveryv1.Endpoint{at("10.0.0.1", false, true), at("10.0.0.1", true, false)}, "10.0.0.1", ""},
	}
	for label, test := range tests {
		t.Run(label, func(t *testing.T) {
			in := endpointSlice(test.family, test.endpoints...)
			slice, wrong := convertSlice(&in)
			var got []string
			for _, e := range slice.Endpoints {
				text := e.Addr.String()
				if e.Terminating {
					text = "-" + text
				}
				got = append(got, text)
			}
			if strings.Join(got, " ") != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if all := strings.Join(wrong, "; "); !strings.Contains(all, test.wrong) || (test.wrong == "") != (all == "") {
				t.Errorf("problems %q, want %q", all, test.wrong)
			}
		})
	}
}

func TestConvertSliceIgnored(t *testing.T) {
	fqdn := endpointSlice("FQDN")
	unlabelled := endpointSlice("IPv4")
	unlabelled.Labels = nil
	empty := endpointSlice("IPv4")
	empty.Labels["kubernetes.io/service-name"] = ""
	tests := map[string]struct {
		in    discoveryv1.EndpointSlice
		wrong int
	}{
		"FQDN": {fqdn, 0}, "no label": {unlabelled, 1}, "empty label": {empty, 1},
		"no address type": {endpointSlice(""), 1}, "nothing": {discoveryv1.EndpointSlice{}, 1},
	}
	for label, test := range tests {
		t.Run(label, func(t *testing.T) {
			got, wrong := convertSlice(&test.in)
			if got != nil || len(wrong) != test.wrong {
				t.Errorf("got %+v and problems %q, want none and %d", got, wrong, test.wrong)
			}
		})
	}
}

func TestConvertNode(t *testing.T) {
	in := corev1.Node{
		ObjectMeta: metav1.ObjectMeta{Name: "a", Labels: map[string]string{"topology.kubernetes.io/zone": "z", "x": "y"}},
		Spec:       corev1.NodeSpec{PodCIDR: "10.244.1.0/24", PodCIDRs: []string{"10.244.1.0/24", "fd00:1::/64", "nonsense"}},
		Status: corev1.NodeStatus{Addresses: []corev1.NodeAddress{
			{Type: "Hostname", Address: "a"}, {Type: "ExternalIP", Address: "203.0.113.9"},
			{Type: "InternalIP", Address: "192.0.2.9"}, {Type: "InternalIP", Address: "2001:db8::9"},
			{Type: "ExternalIP", Address: "192.0.2.9"}, {Type: "InternalIP", Address: "a.example"},
		}},
	}
	want := state.ClusterNode{
		Name: "a", Zone: "z", Eligible: true,
		Addresses: addrs("192.0.2.9", "2001:db8::9", "203.0.113.9"),
		PodCIDRs:  []netip.Prefix{netip.MustParsePrefix("10.244.1.0/24"), netip.MustParsePrefix("fd00:1::/64")},
	}
	stripNode(&in)
	got, wrong := convertNode(&in)
	if !reflect.DeepEqual(*got, want) {
		t.Errorf("got  %+v\nwant %+v", *got, want)
	}
	if len(wrong) != 2 {
		t.Errorf("problems %q, want 2", wrong)
	}

	in.Spec = corev1.NodeSpec{PodCIDR: "10.244.1.0/24", Taints: []corev1.Taint{{Key: "ToBeDeletedByClusterAutoscaler"}}}
	got, _ = convertNode(&in)
	if got.Eligible || len(got.PodCIDRs) != 1 {
		t.Errorf("a tainted node: got %+v", got)
	}
	in = corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: "a", DeletionTimestamp: &metav1.Time{}}}
	if got, _ = convertNode(&in); got.Eligible {
		t.Error("a Node that is being deleted is eligible")
	}
}
