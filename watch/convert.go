package watch

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	// schedulerAnnotation names the IPVS scheduler of one Service.
	schedulerAnnotation = "kube-ipvs.io/scheduler"
	// deletionTaint marks a Node that the cluster autoscaler is about to remove
	// (KEP-3836).
	deletionTaint = "ToBeDeletedByClusterAutoscaler"
	// maxAffinity is the API's limit of a session affinity time-out in seconds.
	maxAffinity = 86400
)

// convertService returns what a proxy reads of a Service, and what is wrong
// with the object, for people.
func convertService(in *corev1.Service) (*state.Service, []string) {
	var wrong problems
	out := &state.Service{
		Name:            state.Name{Namespace: in.Namespace, Name: in.Name},
		UID:             string(in.UID),
		Created:         in.CreationTimestamp.Time,
		Type:            string(in.Spec.Type),
		ClusterIPs:      clusterIPs(&in.Spec),
		ExternalIPs:     in.Spec.ExternalIPs,
		Ingress:         ingress(in.Status.LoadBalancer.Ingress),
		SourceRanges:    in.Spec.LoadBalancerSourceRanges,
		InternalLocal:   valueOr(in.Spec.InternalTrafficPolicy, "") == corev1.ServiceInternalTrafficPolicyLocal,
		ExternalLocal:   in.Spec.ExternalTrafficPolicy == corev1.ServiceExternalTrafficPolicyLocal,
		AffinitySeconds: affinitySeconds(&in.Spec),
		Scheduler:       in.Annotations[schedulerAnnotation],
	}
	if port := in.Spec.HealthCheckNodePort; port != 0 {
		if validPort(port) {
			out.HealthCheckPort = uint16(port)
		} else {
			wrong.add("healthCheckNodePort %d is not a port number", port)
		}
	}
	for _, p := range in.Spec.Ports {
		out.Ports = append(out.Ports, state.ServicePort{
			Name: p.Name, Protocol: string(p.Protocol), Port: p.Port, NodePort: p.NodePort,
		})
	}
	return out, wrong
}

// clusterIPs returns spec.clusterIPs, or spec.clusterIP for an object from
// before dual stack.
func clusterIPs(spec *corev1.ServiceSpec) []string {
	if len(spec.ClusterIPs) > 0 || spec.ClusterIP == "" {
		return spec.ClusterIPs
	}
	return []string{spec.ClusterIP}
}

func ingress(in []corev1.LoadBalancerIngress) []state.Ingress {
	var out []state.Ingress
	for _, i := range in {
		if i.IP == "" {
			continue // a host name is for DNS
		}
		out = append(out, state.Ingress{IP: i.IP, IPMode: string(valueOr(i.IPMode, ""))})
	}
	return out
}

// affinitySeconds returns the time-out of the ClientIP affinity, 0 without it.
func affinitySeconds(spec *corev1.ServiceSpec) uint32 {
	if spec.SessionAffinity != corev1.ServiceAffinityClientIP {
		return 0
	}
	seconds := corev1.DefaultClientIPServiceAffinitySeconds
	if c := spec.SessionAffinityConfig; c != nil && c.ClientIP != nil && valueOr(c.ClientIP.TimeoutSeconds, 0) > 0 {
		seconds = *c.ClientIP.TimeoutSeconds
	}
	return uint32(min(seconds, maxAffinity))
}

// convertSlice returns what a proxy reads of an EndpointSlice, and what is
// wrong with the object. It returns nil for a slice that no proxy reads.
func convertSlice(in *discoveryv1.EndpointSlice) (*state.Slice, []string) {
	var wrong problems
	var family state.Family
	switch in.AddressType {
	case discoveryv1.AddressTypeIPv4:
		family = state.IPv4
	case discoveryv1.AddressTypeIPv6:
		family = state.IPv6
	case discoveryv1.AddressTypeFQDN:
		return nil, nil
	default:
		wrong.add("addressType %q is none of IPv4, IPv6, FQDN: ignoring the slice", in.AddressType)
		return nil, wrong
	}
	service := in.Labels[discoveryv1.LabelServiceName]
	if service == "" {
		wrong.add("the label %s is missing or empty: ignoring the slice", discoveryv1.LabelServiceName)
		return nil, wrong
	}
	out := &state.Slice{
		Name:    state.Name{Namespace: in.Namespace, Name: in.Name},
		Service: state.Name{Namespace: in.Namespace, Name: service},
		Family:  family,
	}
	out.Ports = slicePorts(in.Ports, &wrong)
	out.Endpoints = endpoints(in.Endpoints, family, &wrong)
	// A value that is not a time leaves the zero time, which means unknown.
	out.Triggered, _ = time.Parse(time.RFC3339Nano, in.Annotations[corev1.EndpointsLastChangeTriggerTime])
	return out, wrong
}

// slicePorts leaves out ports without name or number: the API has a name, if
// only an empty one, on every port that a Service refers to.
func slicePorts(in []discoveryv1.EndpointPort, wrong *problems) []state.SlicePort {
	var out []state.SlicePort
	for _, p := range in {
		number := valueOr(p.Port, 0)
		if p.Name == nil || number == 0 {
			continue
		}
		if !validPort(number) {
			wrong.add("port %q: %d is not a port number", *p.Name, number)
			continue
		}
		protocol, err := state.ParseProtocol(string(valueOr(p.Protocol, "")))
		if err != nil {
			wrong.add("port %q: %v", *p.Name, err)
			continue
		}
		out = append(out, state.SlicePort{Name: *p.Name, Protocol: protocol, Port: uint16(number)})
	}
	return out
}

// endpoints returns the endpoints by their first address, which is the only
// one that the API gives a meaning to. Where an address occurs twice the better
// endpoint counts: a Pod in the host's network and its successor have one
// address for a while.
func endpoints(in []discoveryv1.Endpoint, family state.Family, wrong *problems) []state.Endpoint {
	var out []state.Endpoint
	at := make(map[netip.Addr]int, len(in))
	for i := range in {
		if len(in[i].Addresses) == 0 {
			continue
		}
		addr, err := state.ParseAddr(in[i].Addresses[0])
		if err != nil {
			wrong.add("endpoint %v", err)
			continue
		}
		if state.FamilyOf(addr) != family {
			wrong.add("endpoint address %s is not of the family %s", addr, family)
			continue
		}
		e := endpoint(&in[i], addr)
		first, known := at[addr]
		if !known {
			at[addr] = len(out)
			out = append(out, e)
			continue
		}
		if rank(e) == rank(out[first]) {
			wrong.add("endpoint address %s occurs twice", addr)
		}
		if rank(e) > rank(out[first]) {
			out[first] = e
		}
	}
	return out
}

// rank orders endpoints with the same address, the better the higher.
func rank(e state.Endpoint) int {
	r := 0
	if !e.Terminating {
		r += 4
	}
	if e.Ready {
		r += 2
	}
	if e.Serving {
		r++
	}
	return r
}

func endpoint(in *discoveryv1.Endpoint, addr netip.Addr) state.Endpoint {
	out := state.Endpoint{
		Addr:        addr,
		Node:        valueOr(in.NodeName, ""),
		Ready:       valueOr(in.Conditions.Ready, true),
		Serving:     valueOr(in.Conditions.Serving, true),
		Terminating: valueOr(in.Conditions.Terminating, false),
	}
	if in.TargetRef != nil {
		out.Pod = in.TargetRef.Name
	}
	if in.Hints == nil {
		return out
	}
	for _, z := range in.Hints.ForZones {
		out.Zones = append(out.Zones, z.Name)
	}
	for _, n := range in.Hints.ForNodes {
		out.HintNodes = append(out.HintNodes, n.Name)
	}
	return out
}

// convertNode returns what a proxy reads of a Node, and what is wrong with the
// object.
func convertNode(in *corev1.Node) (*state.ClusterNode, []string) {
	var wrong problems
	out := &state.ClusterNode{
		Name:     in.Name,
		Zone:     in.Labels[corev1.LabelTopologyZone],
		Eligible: in.DeletionTimestamp == nil && !hasTaint(in.Spec.Taints, deletionTaint),
	}
	for _, kind := range []corev1.NodeAddressType{corev1.NodeInternalIP, corev1.NodeExternalIP} {
		for _, a := range in.Status.Addresses {
			if a.Type != kind {
				continue
			}
			addr, err := state.ParseAddr(a.Address)
			if err != nil {
				wrong.add("%s %v", kind, err)
				continue
			}
			if !slices.Contains(out.Addresses, addr) {
				out.Addresses = append(out.Addresses, addr)
			}
		}
	}
	out.PodCIDRs = podCIDRs(&in.Spec, &wrong)
	return out, wrong
}

func podCIDRs(spec *corev1.NodeSpec, wrong *problems) []netip.Prefix {
	texts := spec.PodCIDRs
	if len(texts) == 0 && spec.PodCIDR != "" {
		texts = []string{spec.PodCIDR}
	}
	var out []netip.Prefix
	for _, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			wrong.add("podCIDR %q is not a CIDR", text)
			continue
		}
		out = append(out, p.Masked())
	}
	return out
}

func hasTaint(taints []corev1.Taint, key string) bool {
	return slices.ContainsFunc(taints, func(t corev1.Taint) bool { return t.Key == key })
}

func validPort(n int32) bool { return 0 < n && n < 1<<16 }

func valueOr[T any](p *T, absent T) T {
	if p == nil {
		return absent
	}
	return *p
}

// problems collects what is wrong with one object.
type problems []string

func (p *problems) add(format string, args ...any) { *p = append(*p, fmt.Sprintf(format, args...)) }
