package config

import (
	"time"

	"k8s.io/kube-proxy/config/v1alpha1"
)

const withoutEffect = "has no effect here"

// ignored warns of the fields of a file that say something that this proxy
// does not do. A zero value and kube-proxy's default say nothing: kubeadm
// writes every field.
func (r *reader) ignored(in *v1alpha1.KubeProxyConfiguration) {
	if p := in.IPTables.LocalhostNodePorts; p != nil && *p {
		r.warn("iptables.localhostNodePorts", "NodePorts are not served on loopback addresses")
	}
	if bit := in.NFTables.MasqueradeBit; bit != nil && *bit != defaultMasqueradeBit {
		r.warn("nftables.masqueradeBit", withoutEffect)
	}
	set := func(path string, is bool) {
		if is {
			r.warn(path, withoutEffect)
		}
	}
	period := func(path string, d, usual time.Duration) { set(path, d != 0 && d != usual) }
	period("iptables.syncPeriod", in.IPTables.SyncPeriod.Duration, 30*time.Second)
	period("iptables.minSyncPeriod", in.IPTables.MinSyncPeriod.Duration, time.Second)
	period("nftables.syncPeriod", in.NFTables.SyncPeriod.Duration, 30*time.Second)
	period("nftables.minSyncPeriod", in.NFTables.MinSyncPeriod.Duration, time.Second)
	period("logging.flushFrequency", in.Logging.FlushFrequency.Duration.Duration, 5*time.Second)
	set("nftables.masqueradeAll", in.NFTables.MasqueradeAll)
	set("logging.vmodule", len(in.Logging.VModule) > 0)
	set("logging.options.json", in.Logging.Options.JSON.SplitStream || in.Logging.Options.JSON.InfoBufferSize.Value() != 0)
	set("logging.options.text", in.Logging.Options.Text.SplitStream || in.Logging.Options.Text.InfoBufferSize.Value() != 0)
	set("showHiddenMetricsForVersion", in.ShowHiddenMetricsForVersion != "")
	set("portRange", in.PortRange != "")
	set("windowsRunAsService", in.WindowsRunAsService)
	set("winkernel", in.Winkernel != v1alpha1.KubeProxyWinkernelConfiguration{})
}
