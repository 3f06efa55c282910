package state

import (
	"net/netip"
	"time"
)

// Cluster is what the sources have told so far.
type Cluster struct {
	Services map[Name]*Service
	// Slices holds the slices of each Service, by the slice's own name.
	Slices map[Name]map[string]*Slice
	Nodes  map[string]*ClusterNode
}

// NewCluster returns a Cluster without objects.
func NewCluster() *Cluster {
	return &Cluster{
		Services: map[Name]*Service{},
		Slices:   map[Name]map[string]*Slice{},
		Nodes:    map[string]*ClusterNode{},
	}
}

// Service holds the fields of a Kubernetes Service that a proxy reads.
// Addresses stay text, as the API sent them, so that what is wrong with one
// can be reported where the rules are applied.
type Service struct {
	Name
	UID     string
	Created time.Time
	// Type is ClusterIP, NodePort, LoadBalancer or ExternalName.
	Type string
	// ClusterIPs holds spec.clusterIPs, or spec.clusterIP alone where the
	// former is empty.
	ClusterIPs    []string
	ExternalIPs   []string
	Ingress       []Ingress
	SourceRanges  []string
	InternalLocal bool // spec.internalTrafficPolicy is Local
	ExternalLocal bool // spec.externalTrafficPolicy is Local
	// AffinitySeconds is the ClientIP session affinity's time-out; 0 means no
	// affinity.
	AffinitySeconds uint32
	// HealthCheckPort is spec.healthCheckNodePort, 0 for none.
	HealthCheckPort uint16
	// Scheduler is the value of the annotation kube-ipvs.io/scheduler.
	Scheduler string
	Ports     []ServicePort
}

// Ingress is one entry of a Service's status.loadBalancer.ingress.
type Ingress struct {
	IP     string
	IPMode string // VIP, Proxy or empty (VIP)
}

// ServicePort is one entry of spec.ports.
type ServicePort struct {
	Name     string
	Protocol string
	Port     int32
	NodePort int32
}

// Slice holds the fields of an EndpointSlice that a proxy reads.
type Slice struct {
	Name
	Service   Name
	Family    Family
	Ports     []SlicePort
	Endpoints []Endpoint
	// Triggered is the time of the change that led to this version, from the
	// annotation endpoints.kubernetes.io/last-change-trigger-time.
	Triggered time.Time
}

// SlicePort is one entry of an EndpointSlice's ports. Port is 0 where the API
// has none.
type SlicePort struct {
	Name     string
	Protocol Protocol
	Port     uint16
}

// Endpoint is one entry of an EndpointSlice's endpoints, with the defaults of
// absent conditions filled in (KEP-1672: ready and serving true, terminating
// false).
type Endpoint struct {
	Addr        netip.Addr
	Node        string // nodeName, empty if the API has none
	Pod         string // targetRef's name, for people
	Ready       bool
	Serving     bool
	Terminating bool
	Zones       []string // hints.forZones
	HintNodes   []string // hints.forNodes
}

// ClusterNode holds the fields of a Kubernetes Node that a proxy reads.
type ClusterNode struct {
	Name      string
	Addresses []netip.Addr // InternalIP first, then ExternalIP
	PodCIDRs  []netip.Prefix
	Zone      string // label topology.kubernetes.io/zone
	// Eligible is false while the Node is being deleted or carries the cluster
	// autoscaler's taint ToBeDeletedByClusterAutoscaler (KEP-3836).
	Eligible bool
}

// Self is what this node knows of itself.
type Self struct {
	Node string
	Zone string
	// NodeIPs are the addresses of this node's Node object.
	NodeIPs []netip.Addr
	// Addresses are the addresses on this node's devices, without loopback,
	// link-local IPv6 and the proxy's own device.
	Addresses []netip.Addr
	PodCIDRs  []netip.Prefix
	// Foreign are the addresses of every Node object of the cluster.
	Foreign map[netip.Addr]string
}

// Sink takes what a source sees. Its methods return at once and may be called
// from any goroutine; an object handed over must not be changed afterwards.
type Sink interface {
	SetService(*Service)
	DeleteService(Name)
	SetSlice(*Slice)
	DeleteSlice(slice Name)
	SetNode(*ClusterNode)
	DeleteNode(name string)
	// SetAddresses replaces the list of the node's own addresses.
	SetAddresses([]netip.Addr)
	// Synced says that every object that existed at the start has been handed
	// over. Before that nothing may be removed from the kernel.
	Synced()
	// Disturbed says that the proxy's device or its addresses were touched,
	// perhaps by the proxy itself.
	Disturbed()
}
