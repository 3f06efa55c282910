package config

import (
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
)

// reader turns a KubeProxyConfiguration into a Config and collects all that is
// wrong with it.
type reader struct {
	// name returns what the user calls a field: its path or its flag.
	name     func(path string) string
	errs     []error
	warnings []Warning
}

// violation is a value that cannot be used.
type violation struct {
	field  string
	value  any
	detail string
}

func (v violation) Error() string {
	if s, ok := v.value.(string); ok {
		return fmt.Sprintf("%s: %q: %s", v.field, s, v.detail)
	}
	return fmt.Sprintf("%s: %v: %s", v.field, v.value, v.detail)
}

func (r *reader) reject(path string, value any, detail string) {
	r.errs = append(r.errs, violation{r.name(path), value, detail})
}

func (r *reader) warn(path, text string) {
	r.warnings = append(r.warnings, Warning{r.name(path), text})
}

// err returns all violations, one a line.
func (r *reader) err() error {
	if len(r.errs) == 0 {
		return nil
	}
	return fmt.Errorf("the configuration cannot be used:\n%w", errors.Join(r.errs...))
}

// read fills c from in, which has its defaults.
func (r *reader) read(in *v1alpha1.KubeProxyConfiguration, c *Config) {
	r.mode(string(in.Mode))
	r.client(in, c)
	r.servers(in, c)
	r.ipvs(&in.IPVS, &c.IPVS)
	r.masquerade(in, c)
	c.DetectLocal = r.detectLocal(in)
	c.NodePorts = r.nodePorts(in.NodePortAddresses)
	r.conntrack(&in.Conntrack, &c.Conntrack)
	c.OOMScoreAdj = int(r.inRange("oomScoreAdj", *in.OOMScoreAdj, -1000, 1000))
	c.Resync = r.positive("configSyncPeriod", in.ConfigSyncPeriod.Duration)
	c.ExternalIPs = r.externalIPs(in.FeatureGates)
	r.logging(in, c)
}

// mode accepts ipvs and nothing at all: whoever runs this program wants IPVS.
func (r *reader) mode(mode string) {
	switch mode {
	case "", "ipvs":
	case "iptables", "nftables":
		r.reject("mode", mode, "this proxy has the mode ipvs only: run kube-proxy for "+mode+", or set ipvs")
	case "kernelspace":
		r.reject("mode", mode, "this proxy is for Linux and has the mode ipvs only: run kube-proxy on Windows nodes")
	default:
		r.reject("mode", mode, "must be ipvs or empty")
	}
}

func (r *reader) client(in *v1alpha1.KubeProxyConfiguration, c *Config) {
	from := in.ClientConnection
	if from.Burst < 0 {
		r.reject("clientConnection.burst", from.Burst, "must not be negative")
	}
	c.Client.Kubeconfig = from.Kubeconfig
	c.Client.ContentType = from.ContentType
	c.Client.AcceptContentTypes = from.AcceptContentTypes
	c.Client.QPS = from.QPS
	c.Client.Burst = int(from.Burst)
}

func (r *reader) servers(in *v1alpha1.KubeProxyConfiguration, c *Config) {
	bind, err := netip.ParseAddr(in.BindAddress)
	if err != nil || bind.Zone() != "" {
		r.reject("bindAddress", in.BindAddress, "must be an IP address")
	}
	c.BindAddress = bind.Unmap()
	c.HealthzBindAddress = r.listen("healthzBindAddress", in.HealthzBindAddress, healthzPort)
	c.MetricsBindAddress = r.listen("metricsBindAddress", in.MetricsBindAddress, metricsPort)
	c.BindAddressHardFail = in.BindAddressHardFail
	c.Profiling = in.EnableProfiling
}

// listen reads ADDRESS:PORT or ADDRESS; empty means off.
func (r *reader) listen(path, text string, port uint16) netip.AddrPort {
	if text == "" {
		return netip.AddrPort{}
	}
	both, err := netip.ParseAddrPort(text)
	if err == nil && both.Port() > 0 {
		return both
	}
	bare := strings.TrimSuffix(strings.TrimPrefix(text, "["), "]")
	if addr, err := netip.ParseAddr(bare); err == nil {
		return netip.AddrPortFrom(addr, port)
	}
	r.reject(path, text, "must be an IP address and a port from 1 to 65535, such as 0.0.0.0:10256 or [::]:10256")
	return netip.AddrPort{}
}

func (r *reader) ipvs(in *v1alpha1.KubeProxyIPVSConfiguration, c *IPVS) {
	c.SyncPeriod = r.positive("ipvs.syncPeriod", in.SyncPeriod.Duration)
	c.MinSyncPeriod = r.notNegative("ipvs.minSyncPeriod", in.MinSyncPeriod.Duration)
	if c.SyncPeriod > 0 && c.MinSyncPeriod > c.SyncPeriod {
		r.reject("ipvs.minSyncPeriod", c.MinSyncPeriod,
			fmt.Sprintf("must not be more than %s, which is %s", r.name("ipvs.syncPeriod"), c.SyncPeriod))
	}
	c.Scheduler = in.Scheduler
	c.ExcludeCIDRs = r.prefixes("ipvs.excludeCIDRs", in.ExcludeCIDRs)
	c.StrictARP = in.StrictARP
	c.TCPTimeout = r.seconds("ipvs.tcpTimeout", in.TCPTimeout.Duration)
	c.TCPFinTimeout = r.seconds("ipvs.tcpFinTimeout", in.TCPFinTimeout.Duration)
	c.UDPTimeout = r.seconds("ipvs.udpTimeout", in.UDPTimeout.Duration)
}

func (r *reader) masquerade(in *v1alpha1.KubeProxyConfiguration, c *Config) {
	c.MasqueradeBit = int(r.inRange("iptables.masqueradeBit", *in.IPTables.MasqueradeBit, 0, 31))
	c.MasqueradeAll = in.IPTables.MasqueradeAll
}

func (r *reader) detectLocal(in *v1alpha1.KubeProxyConfiguration) DetectLocal {
	out := DetectLocal{
		Mode:                LocalMode(in.DetectLocalMode),
		BridgeInterface:     in.DetectLocal.BridgeInterface,
		InterfaceNamePrefix: in.DetectLocal.InterfaceNamePrefix,
	}
	switch out.Mode {
	case LocalClusterCIDR:
		out.ClusterCIDRs = r.prefixes("clusterCIDR", splitList(in.ClusterCIDR))
	case LocalNodeCIDR:
	case LocalBridgeInterface:
		r.deviceName("detectLocal.bridgeInterface", out.BridgeInterface, out.Mode)
	case LocalInterfaceNamePrefix:
		r.deviceName("detectLocal.interfaceNamePrefix", out.InterfaceNamePrefix, out.Mode)
	default:
		r.reject("detectLocalMode", string(out.Mode), "must be ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	}
	return out
}

// maxDeviceName is the longest name of a device, IFNAMSIZ-1 of linux/if.h.
const maxDeviceName = 15

func (r *reader) deviceName(path, name string, mode LocalMode) {
	switch {
	case name == "":
		r.reject(path, name, fmt.Sprintf("must be set where %s is %s", r.name("detectLocalMode"), mode))
	case len(name) > maxDeviceName:
		r.reject(path, name, fmt.Sprintf("is longer than the name of a device can be (%d characters)", maxDeviceName))
	}
}

// nodePorts reads CIDRs and the keywords primary, localhost and all; nothing
// means all.
func (r *reader) nodePorts(in []string) NodePorts {
	const path = "nodePortAddresses"
	var out NodePorts
	out.All = len(in) == 0
	for i, text := range in {
		at := fmt.Sprintf("%s[%d]", path, i)
		var seen *bool
		switch text {
		case "primary":
			seen = &out.Primary
		case "all":
			seen = &out.All
		case "localhost":
			seen = &out.Localhost
		default:
			if p, err := netip.ParsePrefix(text); err != nil {
				r.reject(at, text, "must be a CIDR or one of primary, localhost, all")
			} else {
				out.CIDRs = append(out.CIDRs, p.Masked())
			}
			continue
		}
		if *seen {
			r.reject(at, text, "is given twice")
		}
		*seen = true
	}
	if out.Localhost || slices.ContainsFunc(out.CIDRs, isLoopback) {
		r.warn(path, "NodePorts are not served on loopback addresses")
	}
	return out
}

func isLoopback(p netip.Prefix) bool { return p.Addr().IsLoopback() }

func (r *reader) conntrack(in *v1alpha1.KubeProxyConntrackConfiguration, c *Conntrack) {
	const maxInt32 = 1<<31 - 1
	c.MaxPerCore = int(r.inRange("conntrack.maxPerCore", *in.MaxPerCore, 0, maxInt32))
	c.Min = int(r.inRange("conntrack.min", *in.Min, 0, maxInt32))
	c.TCPEstablishedTimeout = r.seconds("conntrack.tcpEstablishedTimeout", in.TCPEstablishedTimeout.Duration)
	c.TCPCloseWaitTimeout = r.seconds("conntrack.tcpCloseWaitTimeout", in.TCPCloseWaitTimeout.Duration)
	c.TCPBeLiberal = in.TCPBeLiberal
	c.UDPTimeout = r.seconds("conntrack.udpTimeout", in.UDPTimeout.Duration)
	c.UDPStreamTimeout = r.seconds("conntrack.udpStreamTimeout", in.UDPStreamTimeout.Duration)
}

// externalIPs honours the one feature gate that changes what a proxy does to
// Services; the others are of other programs or other modes.
func (r *reader) externalIPs(gates map[string]bool) bool {
	const gate = "AllowServiceExternalIPs"
	var others []string
	for name := range gates {
		if name != gate {
			others = append(others, name)
		}
	}
	if len(others) > 0 {
		slices.Sort(others)
		r.warn("featureGates", strings.Join(others, ", ")+" without effect here")
	}
	allowed, set := gates[gate]
	return allowed || !set
}

func (r *reader) logging(in *v1alpha1.KubeProxyConfiguration, c *Config) {
	c.LogFormat = LogFormat(in.Logging.Format)
	if c.LogFormat != LogText && c.LogFormat != LogJSON {
		r.reject("logging.format", in.Logging.Format, "must be text or json")
	}
	c.Verbosity = int(in.Logging.Verbosity)
}

func (r *reader) prefixes(path string, texts []string) []netip.Prefix {
	var out []netip.Prefix
	for i, text := range texts {
		p, err := netip.ParsePrefix(text)
		if err != nil {
			r.reject(fmt.Sprintf("%s[%d]", path, i), text, "must be a CIDR, such as 10.244.0.0/16 or fd00:10:244::/56")
			continue
		}
		out = append(out, p.Masked())
	}
	return out
}

// splitList splits at commas and leaves out what is empty.
func splitList(text string) []string {
	var out []string
	for part := range strings.SplitSeq(text, ",") {
		if part = strings.TrimSpace(part); part != "" {
			out = append(out, part)
		}
	}
	return out
}

func (r *reader) inRange(path string, n, low, high int32) int32 {
	if n < low || n > high {
		r.reject(path, n, fmt.Sprintf("must be from %d to %d", low, high))
	}
	return n
}

func (r *reader) positive(path string, d time.Duration) time.Duration {
	if d <= 0 {
		r.reject(path, d, "must be more than 0")
	}
	return d
}

func (r *reader) notNegative(path string, d time.Duration) time.Duration {
	if d < 0 {
		r.reject(path, d, "must not be negative")
	}
	return d
}

// seconds checks a time-out of the kernel, which counts in whole seconds and
// takes 0 as leave it.
func (r *reader) seconds(path string, d time.Duration) time.Duration {
	if d < 0 || 0 < d && d < time.Second {
		r.reject(path, d, "must be 0, to leave the kernel's, or at least 1s")
	}
	return d
}
