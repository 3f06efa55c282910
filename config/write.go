package config

import (
	"fmt"
	"net/netip"
	"os"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	logsapi "k8s.io/component-base/logs/api/v1"
	"k8s.io/kube-proxy/config/v1alpha1"
	"sigs.k8s.io/yaml"
)

// WriteFile writes the configuration to a file that --config reads. What is
// kube-ipvs's own and has no field there stays a flag.
func (c *Config) WriteFile(path string) error {
	data, err := c.YAML()
	if err != nil {
		return err
	}
	if err := os.WriteFile(path, data, 0o644); err != nil {
		return fmt.Errorf("writing the configuration: %w", err)
	}
	return nil
}

// YAML returns the configuration as a KubeProxyConfiguration.
func (c *Config) YAML() ([]byte, error) {
	data, err := yaml.Marshal(c.kubeProxy())
	if err != nil {
		return nil, fmt.Errorf("encoding the configuration: %w", err)
	}
	return data, nil
}

func (c *Config) kubeProxy() *v1alpha1.KubeProxyConfiguration {
	out := &v1alpha1.KubeProxyConfiguration{
		TypeMeta:            metav1.TypeMeta{APIVersion: v1alpha1.SchemeGroupVersion.String(), Kind: kind},
		Mode:                "ipvs",
		HostnameOverride:    c.HostnameOverride,
		BindAddress:         c.BindAddress.String(),
		HealthzBindAddress:  listenText(c.HealthzBindAddress),
		MetricsBindAddress:  listenText(c.MetricsBindAddress),
		BindAddressHardFail: c.BindAddressHardFail,
		EnableProfiling:     c.Profiling,
		DetectLocalMode:     v1alpha1.LocalMode(c.DetectLocal.Mode),
		ClusterCIDR:         strings.Join(texts(c.DetectLocal.ClusterCIDRs), ","),
		NodePortAddresses:   c.NodePorts.texts(),
		OOMScoreAdj:         new(int32(c.OOMScoreAdj)),
		ConfigSyncPeriod:    metav1.Duration{Duration: c.Resync},
		Logging: logsapi.LoggingConfiguration{
			Format: string(c.LogFormat), Verbosity: logsapi.VerbosityLevel(c.Verbosity),
		},
	}
	if !c.ExternalIPs {
		out.FeatureGates = map[string]bool{"AllowServiceExternalIPs": false}
	}
	out.ClientConnection.Kubeconfig = c.Client.Kubeconfig
	out.ClientConnection.ContentType = c.Client.ContentType
	out.ClientConnection.AcceptContentTypes = c.Client.AcceptContentTypes
	out.ClientConnection.QPS = c.Client.QPS
	out.ClientConnection.Burst = int32(c.Client.Burst)
	out.DetectLocal.BridgeInterface = c.DetectLocal.BridgeInterface
	out.DetectLocal.InterfaceNamePrefix = c.DetectLocal.InterfaceNamePrefix
	out.IPTables.MasqueradeBit = new(int32(c.MasqueradeBit))
	out.IPTables.MasqueradeAll = c.MasqueradeAll
	out.IPVS = c.IPVS.kubeProxy()
	out.Conntrack = c.Conntrack.kubeProxy()
	return out
}

func (c *IPVS) kubeProxy() v1alpha1.KubeProxyIPVSConfiguration {
	return v1alpha1.KubeProxyIPVSConfiguration{
		SyncPeriod:    metav1.Duration{Duration: c.SyncPeriod},
		MinSyncPeriod: metav1.Duration{Duration: c.MinSyncPeriod},
		Scheduler:     c.Scheduler,
		ExcludeCIDRs:  texts(c.ExcludeCIDRs),
		StrictARP:     c.StrictARP,
		TCPTimeout:    metav1.Duration{Duration: c.TCPTimeout},
		TCPFinTimeout: metav1.Duration{Duration: c.TCPFinTimeout},
		UDPTimeout:    metav1.Duration{Duration: c.UDPTimeout},
	}
}

func (c *Conntrack) kubeProxy() v1alpha1.KubeProxyConntrackConfiguration {
	return v1alpha1.KubeProxyConntrackConfiguration{
		MaxPerCore:            new(int32(c.MaxPerCore)),
		Min:                   new(int32(c.Min)),
		TCPEstablishedTimeout: &metav1.Duration{Duration: c.TCPEstablishedTimeout},
		TCPCloseWaitTimeout:   &metav1.Duration{Duration: c.TCPCloseWaitTimeout},
		TCPBeLiberal:          c.TCPBeLiberal,
		UDPTimeout:            metav1.Duration{Duration: c.UDPTimeout},
		UDPStreamTimeout:      metav1.Duration{Duration: c.UDPStreamTimeout},
	}
}

// texts returns the list as nodePortAddresses holds it.
func (n *NodePorts) texts() []string {
	var out []string
	if n.All {
		out = append(out, "all")
	}
	if n.Primary {
		out = append(out, "primary")
	}
	if n.Localhost {
		out = append(out, "localhost")
	}
	return append(out, texts(n.CIDRs)...)
}

func texts(prefixes []netip.Prefix) []string {
	var out []string
	for _, p := range prefixes {
		out = append(out, p.String())
	}
	return out
}

func listenText(a netip.AddrPort) string {
	if !a.IsValid() {
		return ""
	}
	return a.String()
}
