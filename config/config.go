// Package config reads kube-proxy's flags and configuration file and returns
// what of them applies to an IPVS proxy, as plain data. It reads one file and
// the host name; it never logs, and never changes anything but the file that
// WriteFile is told to write.
package config

import (
	"net/netip"
	"time"
)

// Config is the effective configuration.
type Config struct {
	// ConfigFile is where the configuration came from, empty for flags.
	ConfigFile string
	// WriteConfigTo, Cleanup and InitOnly ask for one action and an exit.
	WriteConfigTo string
	Cleanup       bool
	InitOnly      bool

	// NodeName is HostnameOverride or the host's name, trimmed and in lower
	// case.
	NodeName         string
	HostnameOverride string

	Client Client
	// Resync is how often the API's objects are looked at again.
	Resync time.Duration
	// ManifestsDir is a folder to read instead of the API, empty for the API.
	ManifestsDir string

	// BindAddress says which family and address of the node comes first; an
	// unspecified address only says the family. Nothing listens on it.
	BindAddress netip.Addr
	// HealthzBindAddress and MetricsBindAddress are not valid where the server
	// is off.
	HealthzBindAddress  netip.AddrPort
	MetricsBindAddress  netip.AddrPort
	BindAddressHardFail bool
	Profiling           bool

	IPVS           IPVS
	MasqueradeBit  int // 0 to 31
	MasqueradeAll  bool
	DetectLocal    DetectLocal
	NodePorts      NodePorts
	Conntrack      Conntrack
	OOMScoreAdj    int
	IPTablesFlavor IPTablesFlavor
	// ExternalIPs is false where the feature gate AllowServiceExternalIPs is
	// off: spec.externalIPs then counts as empty.
	ExternalIPs bool
	// AnswerPing lets the node answer echo requests to Service addresses.
	AnswerPing bool
	// DrainTimeout bounds the drain of an endpoint that is listed as
	// terminating, DrainTimeoutGone that of one that vanished.
	DrainTimeout     time.Duration
	DrainTimeoutGone time.Duration

	Verbosity int // as -v: 0 for what matters, 2 and more for debugging
	LogFormat LogFormat
}

// Debug reports whether debug messages are wanted.
func (c *Config) Debug() bool { return c.Verbosity >= 2 }

// Client says how to reach the API server.
type Client struct {
	// Kubeconfig is a file; Master a URL that replaces the file's. Without both
	// the process runs in a Pod.
	Kubeconfig         string
	Master             string
	ContentType        string
	AcceptContentTypes string
	QPS                float32
	Burst              int
}

// IPVS holds what concerns IPVS and its sync.
type IPVS struct {
	SyncPeriod    time.Duration
	MinSyncPeriod time.Duration
	// Scheduler is as given, empty for the default.
	Scheduler string
	// ExcludeCIDRs hold virtual servers that are somebody else's.
	ExcludeCIDRs []netip.Prefix
	StrictARP    bool
	// The time-outs are 0 where the kernel's stay as they are.
	TCPTimeout    time.Duration
	TCPFinTimeout time.Duration
	UDPTimeout    time.Duration
}

// LocalMode says how traffic of local Pods is recognised.
type LocalMode string

// The modes, as in KubeProxyConfiguration.
const (
	LocalClusterCIDR         LocalMode = "ClusterCIDR"
	LocalNodeCIDR            LocalMode = "NodeCIDR"
	LocalBridgeInterface     LocalMode = "BridgeInterface"
	LocalInterfaceNamePrefix LocalMode = "InterfaceNamePrefix"
)

// DetectLocal recognises traffic of local Pods.
type DetectLocal struct {
	Mode LocalMode
	// ClusterCIDRs counts in its mode only, any number for each family.
	ClusterCIDRs        []netip.Prefix
	BridgeInterface     string
	InterfaceNamePrefix string
}

// NodePorts says on which of the node's addresses NodePorts are served.
type NodePorts struct {
	// All means every address; it is the default.
	All bool
	// Primary means the addresses of the Node object.
	Primary bool
	// Localhost was asked for. IPVS cannot serve it.
	Localhost bool
	CIDRs     []netip.Prefix
}

// Conntrack holds sizes and time-outs of connection tracking; 0 leaves what the
// kernel has.
type Conntrack struct {
	MaxPerCore            int
	Min                   int
	TCPEstablishedTimeout time.Duration
	TCPCloseWaitTimeout   time.Duration
	TCPBeLiberal          bool
	UDPTimeout            time.Duration
	UDPStreamTimeout      time.Duration
}

// IPTablesFlavor is the variant of the iptables programs to run.
type IPTablesFlavor string

// The variants.
const (
	FlavorAuto   IPTablesFlavor = "auto"
	FlavorNFT    IPTablesFlavor = "nft"
	FlavorLegacy IPTablesFlavor = "legacy"
)

// LogFormat is the form of log lines.
type LogFormat string

// The forms.
const (
	LogText LogFormat = "text"
	LogJSON LogFormat = "json"
)

// Warning names a flag or field that was accepted and does not do what its
// author may expect.
type Warning struct {
	Field string
	Text  string
}

// String returns the warning as one line.
func (w Warning) String() string { return w.Field + ": " + w.Text }
