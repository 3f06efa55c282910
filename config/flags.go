package config

import (
	"os"
	"strings"
	"time"

	"github.com/spf13/pflag"
	"k8s.io/kube-proxy/config/v1alpha1"
)

// Flags is the command line.
type Flags struct {
	set *pflag.FlagSet
	// fields is what the flags say that a file can say too.
	fields v1alpha1.KubeProxyConfiguration
	// own holds what only flags can say.
	own Config
	// flagOf names the flag of a field, fieldOf the field of a flag.
	flagOf  map[string]string
	fieldOf map[string]string
	// without are the flags that are accepted and do nothing, refused those
	// that are not accepted, each with the reason.
	without map[string]string
	refused map[string]string
	// always are the flags that count beside a file.
	always map[string]bool

	gates                    map[string]string
	healthzPort, metricsPort int
	verbosity                uint32
	hostname                 func() (string, error)
}

// AddFlags adds kube-proxy's flags and those of kube-ipvs to a set. Words of a
// flag may be joined by underscores, as kube-proxy allows.
func AddFlags(set *pflag.FlagSet) *Flags {
	f := &Flags{
		set: set, hostname: os.Hostname,
		flagOf: map[string]string{}, fieldOf: map[string]string{},
		without: map[string]string{}, refused: map[string]string{}, always: map[string]bool{},
	}
	setDefaults(&f.fields)
	set.SetNormalizeFunc(func(_ *pflag.FlagSet, name string) pflag.NormalizedName {
		return pflag.NormalizedName(strings.ReplaceAll(name, "_", "-"))
	})
	f.addActions()
	f.addClient()
	f.addServers()
	f.addRules()
	f.addConntrack()
	f.addLogging()
	f.addOwn()
	f.addWithoutEffect()
	f.addRefused()
	return f
}

// field notes that the flag that was just added stands for a field.
func (f *Flags) field(flag, path string) {
	f.flagOf[path] = flag
	f.fieldOf[flag] = path
}

// beside notes flags that count beside a file.
func (f *Flags) beside(flags ...string) {
	for _, name := range flags {
		f.always[name] = true
	}
}

func (f *Flags) text(p *string, flag, path, usage string) {
	f.set.StringVar(p, flag, *p, usage)
	f.field(flag, path)
}

func (f *Flags) list(p *[]string, flag, path, usage string) {
	f.set.StringSliceVar(p, flag, *p, usage)
	f.field(flag, path)
}

func (f *Flags) toggle(p *bool, flag, path, usage string) {
	f.set.BoolVar(p, flag, *p, usage)
	f.field(flag, path)
}

func (f *Flags) number(p *int32, flag, path, usage string) {
	f.set.Int32Var(p, flag, *p, usage)
	f.field(flag, path)
}

func (f *Flags) duration(p *time.Duration, flag, path, usage string) {
	f.set.DurationVar(p, flag, *p, usage)
	f.field(flag, path)
}

func (f *Flags) addActions() {
	f.set.StringVar(&f.own.ConfigFile, "config", "", "KubeProxyConfiguration file; flags that have a field there are then ignored")
	f.set.StringVar(&f.own.WriteConfigTo, "write-config-to", "", "write the effective configuration to this file and exit")
	f.set.BoolVar(&f.own.Cleanup, "cleanup", false, "remove everything that kube-ipvs has put into the kernel and exit")
	f.set.BoolVar(&f.own.InitOnly, "init-only", false, "do what needs full root rights and exit; afterwards CAP_NET_ADMIN is enough")
	f.beside("config", "write-config-to", "cleanup", "init-only")
}

func (f *Flags) addClient() {
	c := &f.fields.ClientConnection
	f.text(&c.Kubeconfig, "kubeconfig", "clientConnection.kubeconfig", "kubeconfig file; without it and --master the service account of the Pod is used")
	f.set.StringVar(&f.own.Client.Master, "master", "", "URL of the API server, in place of the kubeconfig's")
	f.beside("master")
	f.text(&c.ContentType, "kube-api-content-type", "clientConnection.contentType", "content type of requests to the API server")
	f.set.Float32Var(&c.QPS, "kube-api-qps", c.QPS, "requests per second to the API server")
	f.field("kube-api-qps", "clientConnection.qps")
	f.number(&c.Burst, "kube-api-burst", "clientConnection.burst", "requests to the API server in a burst")
	f.duration(&f.fields.ConfigSyncPeriod.Duration, "config-sync-period", "configSyncPeriod", "how often the API's objects are looked at again")
	f.set.StringVar(&f.own.HostnameOverride, "hostname-override", "", "name of this node, in place of the host's name")
	f.field("hostname-override", "hostnameOverride")
	f.beside("hostname-override")
	f.set.StringToStringVar(&f.gates, "feature-gates", nil, "Kubernetes feature gates; AllowServiceExternalIPs counts, others are ignored")
	f.field("feature-gates", "featureGates")
}

func (f *Flags) addServers() {
	c := &f.fields
	f.text(&c.BindAddress, "bind-address", "bindAddress", "the node's primary address or family; nothing listens on it")
	f.text(&c.HealthzBindAddress, "healthz-bind-address", "healthzBindAddress", "address and port of the health check server, empty for none")
	f.text(&c.MetricsBindAddress, "metrics-bind-address", "metricsBindAddress", "address and port of the metrics server, empty for none")
	f.toggle(&c.BindAddressHardFail, "bind-address-hard-fail", "bindAddressHardFail", "exit when a server cannot listen")
	f.toggle(&c.EnableProfiling, "profiling", "enableProfiling", "serve /debug/pprof beside the metrics")
	f.set.IntVar(&f.healthzPort, "healthz-port", healthzPort, "deprecated: use --healthz-bind-address; 0 for no health check server")
	f.set.IntVar(&f.metricsPort, "metrics-port", metricsPort, "deprecated: use --metrics-bind-address; 0 for no metrics server")
	f.number(c.OOMScoreAdj, "oom-score-adj", "oomScoreAdj", "oom_score_adj of this process, -1000 to 1000")
}

func (f *Flags) addRules() {
	c := &f.fields
	f.set.StringVar((*string)(&c.Mode), "proxy-mode", "", "ipvs, or empty")
	f.field("proxy-mode", "mode")
	f.duration(&c.IPVS.SyncPeriod.Duration, "ipvs-sync-period", "ipvs.syncPeriod", "how often everything is compared with the kernel")
	f.duration(&c.IPVS.MinSyncPeriod.Duration, "ipvs-min-sync-period", "ipvs.minSyncPeriod", "least time between two syncs")
	f.text(&c.IPVS.Scheduler, "ipvs-scheduler", "ipvs.scheduler", "IPVS scheduler, empty for rr")
	f.list(&c.IPVS.ExcludeCIDRs, "ipvs-exclude-cidrs", "ipvs.excludeCIDRs", "CIDRs whose virtual servers and addresses are never touched")
	f.toggle(&c.IPVS.StrictARP, "ipvs-strict-arp", "ipvs.strictARP", "set arp_ignore 1 and arp_announce 2")
	f.duration(&c.IPVS.TCPTimeout.Duration, "ipvs-tcp-timeout", "ipvs.tcpTimeout", "time-out of idle IPVS TCP connections, 0 to leave the kernel's")
	f.duration(&c.IPVS.TCPFinTimeout.Duration, "ipvs-tcpfin-timeout", "ipvs.tcpFinTimeout", "time-out of IPVS TCP connections after a FIN, 0 to leave the kernel's")
	f.duration(&c.IPVS.UDPTimeout.Duration, "ipvs-udp-timeout", "ipvs.udpTimeout", "time-out of IPVS UDP flows, 0 to leave the kernel's")
	f.number(c.IPTables.MasqueradeBit, "iptables-masquerade-bit", "iptables.masqueradeBit", "bit of the packet mark that asks for masquerading, 0 to 31")
	f.toggle(&c.IPTables.MasqueradeAll, "masquerade-all", "iptables.masqueradeAll", "masquerade all traffic to cluster IPs")
	f.set.StringVar((*string)(&c.DetectLocalMode), "detect-local-mode", string(c.DetectLocalMode), "how traffic of local Pods is recognised: ClusterCIDR, NodeCIDR, BridgeInterface or InterfaceNamePrefix")
	f.field("detect-local-mode", "detectLocalMode")
	f.text(&c.DetectLocal.BridgeInterface, "pod-bridge-interface", "detectLocal.bridgeInterface", "the Pods' bridge, for the mode BridgeInterface")
	f.text(&c.DetectLocal.InterfaceNamePrefix, "pod-interface-name-prefix", "detectLocal.interfaceNamePrefix", "how the names of the Pods' devices begin, for the mode InterfaceNamePrefix")
	f.text(&c.ClusterCIDR, "cluster-cidr", "clusterCIDR", "the Pods' CIDRs, separated by commas, for the mode ClusterCIDR")
	f.list(&c.NodePortAddresses, "nodeport-addresses", "nodePortAddresses", "CIDRs or keywords (primary, all) of the node's addresses that serve NodePorts; empty for all")
}

func (f *Flags) addConntrack() {
	c := &f.fields.Conntrack
	f.number(c.MaxPerCore, "conntrack-max-per-core", "conntrack.maxPerCore", "tracked connections for each CPU, 0 to leave the kernel's limit")
	f.number(c.Min, "conntrack-min", "conntrack.min", "least number of tracked connections")
	f.duration(&c.TCPEstablishedTimeout.Duration, "conntrack-tcp-timeout-established", "conntrack.tcpEstablishedTimeout", "time-out of idle TCP connections, 0 to leave the kernel's")
	f.duration(&c.TCPCloseWaitTimeout.Duration, "conntrack-tcp-timeout-close-wait", "conntrack.tcpCloseWaitTimeout", "time-out of TCP connections in CLOSE_WAIT, 0 to leave the kernel's")
	f.toggle(&c.TCPBeLiberal, "conntrack-tcp-be-liberal", "conntrack.tcpBeLiberal", "let TCP packets out of window pass as valid")
	f.duration(&c.UDPTimeout.Duration, "conntrack-udp-timeout", "conntrack.udpTimeout", "time-out of UDP flows without an answer, 0 to leave the kernel's")
	f.duration(&c.UDPStreamTimeout.Duration, "conntrack-udp-timeout-stream", "conntrack.udpStreamTimeout", "time-out of UDP flows with answers, 0 to leave the kernel's")
}

func (f *Flags) addLogging() {
	f.set.Uint32VarP(&f.verbosity, "v", "v", 0, "log level: 0 for what matters, 2 and more for debugging")
	f.field("v", "logging.verbosity")
	f.text(&f.fields.Logging.Format, "logging-format", "logging.format", "text or json")
	f.beside("v", "logging-format")
}

func (f *Flags) addOwn() {
	f.set.StringVar(&f.own.ManifestsDir, "manifests", "", "folder of YAML or JSON manifests to read in place of the API")
	f.set.DurationVar(&f.own.DrainTimeout, "drain-timeout", 10*time.Minute, "how long an endpoint that terminates keeps its connections at most")
	f.set.DurationVar(&f.own.DrainTimeoutGone, "drain-timeout-gone", time.Minute, "how long an endpoint that has vanished keeps its connections at most")
	f.own.IPTablesFlavor = FlavorAuto
	f.set.StringVar((*string)(&f.own.IPTablesFlavor), "iptables-flavour", string(FlavorAuto), "iptables programs to run: auto, nft or legacy")
	f.set.BoolVar(&f.own.AnswerPing, "answer-ping", true, "answer echo requests to Service addresses")
	f.beside("manifests", "drain-timeout", "drain-timeout-gone", "iptables-flavour", "answer-ping")
}

// addWithoutEffect adds what kube-proxy's users may have on their command
// lines and what does not matter here.
func (f *Flags) addWithoutEffect() {
	const loopback = "NodePorts are not served on loopback addresses"
	for flag, why := range map[string]string{
		"iptables-localhost-nodeports":    loopback,
		"iptables-sync-period":            withoutEffect + ", see --ipvs-sync-period",
		"iptables-min-sync-period":        withoutEffect + ", see --ipvs-min-sync-period",
		"show-hidden-metrics-for-version": withoutEffect,
		"vmodule":                         withoutEffect,
		"log-flush-frequency":             withoutEffect,
		"log-json-info-buffer-size":       withoutEffect,
		"log-json-split-stream":           withoutEffect,
		"log-text-info-buffer-size":       withoutEffect,
		"log-text-split-stream":           withoutEffect,
		"boot-id-file":                    withoutEffect,
		"machine-id-file":                 withoutEffect,
	} {
		f.without[flag] = why
		f.hidden(flag)
		f.beside(flag)
	}
}

func (f *Flags) addRefused() {
	refuse := func(why string, flags ...string) {
		for _, flag := range flags {
			f.refused[flag] = why
			f.hidden(flag)
			f.beside(flag)
		}
	}
	refuse("this flag of klog no longer exists, nor in kube-proxy: remove it; logs go to standard error",
		"add-dir-header", "alsologtostderr", "log-backtrace-at", "log-dir", "log-file", "log-file-max-size",
		"logtostderr", "one-output", "skip-headers", "skip-log-headers", "stderrthreshold")
	refuse("this flag is for Windows, this proxy for Linux: remove it",
		"windows-service", "network-name", "source-vip", "enable-dsr", "root-hnsendpoint-name", "forward-healthcheck-vip")
}

// hidden adds a flag that takes any value, or none.
func (f *Flags) hidden(flag string) {
	f.set.String(flag, "", "")
	added := f.set.Lookup(flag)
	added.Hidden = true
	if isToggle(flag) {
		added.NoOptDefVal = "true"
	}
}

// isToggle says which of the hidden flags may stand without a value.
func isToggle(flag string) bool {
	switch flag {
	case "iptables-localhost-nodeports", "log-json-split-stream", "log-text-split-stream",
		"add-dir-header", "alsologtostderr", "logtostderr", "one-output", "skip-headers", "skip-log-headers",
		"windows-service", "enable-dsr", "forward-healthcheck-vip":
		return true
	}
	return false
}
