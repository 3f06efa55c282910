package config

import (
	"errors"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/spf13/pflag"
)

// load runs Load for a command line on a host named Host.
func load(t *testing.T, args ...string) (Config, []Warning, error) {
	t.Helper()
	set := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	f := AddFlags(set)
	f.hostname = func() (string, error) { return " Host\n", nil }
	if err := set.Parse(args); err != nil {
		t.Fatal(err)
	}
	return f.Load()
}

// loadFile runs Load for a file with the given lines.
func loadFile(t *testing.T, lines string, args ...string) (Config, []Warning, error) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "config.yaml")
	text := "apiVersion: kubeproxy.config.k8s.io/v1alpha1\nkind: KubeProxyConfiguration\n" + lines
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return load(t, append(args, "--config="+path)...)
}

func defaults() Config {
	return Config{
		NodeName:           "host",
		Client:             Client{ContentType: "application/vnd.kubernetes.protobuf", QPS: 5, Burst: 10},
		Resync:             15 * time.Minute,
		BindAddress:        netip.IPv4Unspecified(),
		HealthzBindAddress: netip.MustParseAddrPort("0.0.0.0:10256"),
		MetricsBindAddress: netip.MustParseAddrPort("127.0.0.1:10249"),
		IPVS:               IPVS{SyncPeriod: 30 * time.Second},
		MasqueradeBit:      14,
		DetectLocal:        DetectLocal{Mode: LocalClusterCIDR},
		NodePorts:          NodePorts{All: true},
		Conntrack: Conntrack{MaxPerCore: 32768, Min: 131072,
			TCPEstablishedTimeout: 24 * time.Hour, TCPCloseWaitTimeout: time.Hour},
		OOMScoreAdj:      -999,
		IPTablesFlavor:   FlavorAuto,
		ExternalIPs:      true,
		AnswerPing:       true,
		DrainTimeout:     10 * time.Minute,
		DrainTimeoutGone: time.Minute,
		LogFormat:        LogText,
	}
}

func TestDefaults(t *testing.T) {
	for label, loaded := range map[string]func() (Config, []Warning, error){
		"flags": func() (Config, []Warning, error) { return load(t) },
		"file":  func() (Config, []Warning, error) { return loadFile(t, "") },
	} {
		t.Run(label, func(t *testing.T) {
			got, warnings, err := loaded()
			if err != nil || len(warnings) > 0 {
				t.Fatalf("warnings %v, error %v", warnings, err)
			}
			got.ConfigFile = ""
			if want := defaults(); !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v", got, want)
			}
		})
	}
}

func TestKubeadm(t *testing.T) {
	got, warnings, err := load(t, "--config=testdata/kubeadm.yaml", "--hostname-override=Node-1")
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %v, error %v", warnings, err)
	}
	want := defaults()
	want.ConfigFile = "testdata/kubeadm.yaml"
	want.NodeName, want.HostnameOverride = "node-1", "node-1"
	want.Client.Kubeconfig = "/var/lib/kube-proxy/kubeconfig.conf"
	want.DetectLocal.ClusterCIDRs = prefixes("10.244.0.0/16", "fd00:10:244::/56")
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func prefixes(texts ...string) []netip.Prefix {
	var out []netip.Prefix
	for _, t := range texts {
		out = append(out, netip.MustParsePrefix(t))
	}
	return out
}

// kept holds what is implemented, by flag and by field, with its effect.
func TestKept(t *testing.T) {
	tests := []struct {
		flag, field string
		want        func(*Config)
	}{
		{"--kubeconfig=/k", "clientConnection: {kubeconfig: /k}", func(c *Config) { c.Client.Kubeconfig = "/k" }},
		{"--kube-api-content-type=application/json", "clientConnection: {contentType: application/json}", func(c *Config) { c.Client.ContentType = "application/json" }},
		{"", "clientConnection: {acceptContentTypes: application/json}", func(c *Config) { c.Client.AcceptContentTypes = "application/json" }},
		{"--kube-api-qps=7.5", "clientConnection: {qps: 7.5}", func(c *Config) { c.Client.QPS = 7.5 }},
		{"--kube-api-burst=3", "clientConnection: {burst: 3}", func(c *Config) { c.Client.Burst = 3 }},
		{"--config-sync-period=1m", "configSyncPeriod: 1m", func(c *Config) { c.Resync = time.Minute }},
		{"--hostname-override=B", "hostnameOverride: B", func(c *Config) { c.NodeName, c.HostnameOverride = "b", "b" }},
		{"--bind-address=::", "bindAddress: '::'", func(c *Config) {
			c.BindAddress = netip.IPv6Unspecified()
			c.HealthzBindAddress = netip.MustParseAddrPort("[::]:10256")
			c.MetricsBindAddress = netip.MustParseAddrPort("[::1]:10249")
		}},
		{"--healthz-bind-address=192.0.2.1", "healthzBindAddress: 192.0.2.1", func(c *Config) { c.HealthzBindAddress = netip.MustParseAddrPort("192.0.2.1:10256") }},
		{"--metrics-bind-address=[::]:99", "metricsBindAddress: '[::]:99'", func(c *Config) { c.MetricsBindAddress = netip.MustParseAddrPort("[::]:99") }},
		{"--metrics-bind-address=[::]", "metricsBindAddress: '::'", func(c *Config) { c.MetricsBindAddress = netip.MustParseAddrPort("[::]:10249") }},
		{"--healthz-bind-address=", "", func(c *Config) { c.HealthzBindAddress = netip.AddrPort{} }},
		{"--bind-address-hard-fail", "bindAddressHardFail: true", func(c *Config) { c.BindAddressHardFail = true }},
		{"--profiling", "enableProfiling: true", func(c *Config) { c.Profiling = true }},
		{"--oom-score-adj=0", "oomScoreAdj: 0", func(c *Config) { c.OOMScoreAdj = 0 }},
		{"--proxy-mode=ipvs", "mode: ipvs", func(*Config) {}},
		{"--ipvs-sync-period=5s", "ipvs: {syncPeriod: 5s}", func(c *Config) { c.IPVS.SyncPeriod = 5 * time.Second }},
		{"--ipvs-min-sync-period=2s", "ipvs: {minSyncPeriod: 2s}", func(c *Config) { c.IPVS.MinSyncPeriod = 2 * time.Second }},
		{"--ipvs-scheduler=wlc", "ipvs: {scheduler: wlc}", func(c *Config) { c.IPVS.Scheduler = "wlc" }},
		{"--ipvs-exclude-cidrs=192.0.2.9/24,fd00::/8", "ipvs: {excludeCIDRs: [192.0.2.9/24, 'fd00::/8']}", func(c *Config) { c.IPVS.ExcludeCIDRs = prefixes("192.0.2.0/24", "fd00::/8") }},
		{"--ipvs-strict-arp", "ipvs: {strictARP: true}", func(c *Config) { c.IPVS.StrictARP = true }},
		{"--ipvs-tcp-timeout=1m", "ipvs: {tcpTimeout: 1m}", func(c *Config) { c.IPVS.TCPTimeout = time.Minute }},
		{"--ipvs-tcpfin-timeout=1m", "ipvs: {tcpFinTimeout: 1m}", func(c *Config) { c.IPVS.TCPFinTimeout = time.Minute }},
		{"--ipvs-udp-timeout=1m", "ipvs: {udpTimeout: 1m}", func(c *Config) { c.IPVS.UDPTimeout = time.Minute }},
		{"--iptables-masquerade-bit=0", "iptables: {masqueradeBit: 0}", func(c *Config) { c.MasqueradeBit = 0 }},
		{"--masquerade-all", "iptables: {masqueradeAll: true}", func(c *Config) { c.MasqueradeAll = true }},
		{"--detect-local-mode=NodeCIDR", "detectLocalMode: NodeCIDR", func(c *Config) { c.DetectLocal.Mode = LocalNodeCIDR }},
		{"--cluster-cidr=10.1.0.0/16, 10.2.0.0/16,10.3.0.0/16", "clusterCIDR: 10.1.0.0/16,10.2.0.0/16,10.3.0.0/16", func(c *Config) {
			c.DetectLocal.ClusterCIDRs = prefixes("10.1.0.0/16", "10.2.0.0/16", "10.3.0.0/16")
		}},
		{"--nodeport-addresses=primary,192.0.2.0/24", "nodePortAddresses: [primary, 192.0.2.0/24]", func(c *Config) {
			c.NodePorts = NodePorts{Primary: true, CIDRs: prefixes("192.0.2.0/24")}
		}},
		{"--nodeport-addresses=all", "nodePortAddresses: [all]", func(*Config) {}},
		{"--conntrack-max-per-core=0", "conntrack: {maxPerCore: 0}", func(c *Config) { c.Conntrack.MaxPerCore = 0 }},
		{"--conntrack-min=0", "conntrack: {min: 0}", func(c *Config) { c.Conntrack.Min = 0 }},
		{"--conntrack-tcp-timeout-established=0", "conntrack: {tcpEstablishedTimeout: 0s}", func(c *Config) { c.Conntrack.TCPEstablishedTimeout = 0 }},
		{"--conntrack-tcp-timeout-close-wait=1m", "conntrack: {tcpCloseWaitTimeout: 1m}", func(c *Config) { c.Conntrack.TCPCloseWaitTimeout = time.Minute }},
		{"--conntrack-tcp-be-liberal", "conntrack: {tcpBeLiberal: true}", func(c *Config) { c.Conntrack.TCPBeLiberal = true }},
		{"--conntrack-udp-timeout=1m", "conntrack: {udpTimeout: 1m}", func(c *Config) { c.Conntrack.UDPTimeout = time.Minute }},
		{"--conntrack-udp-timeout-stream=1m", "conntrack: {udpStreamTimeout: 1m}", func(c *Config) { c.Conntrack.UDPStreamTimeout = time.Minute }},
		{"--feature-gates=AllowServiceExternalIPs=false", "featureGates: {AllowServiceExternalIPs: false}", func(c *Config) { c.ExternalIPs = false }},
		{"-v=4", "logging: {verbosity: 4}", func(c *Config) { c.Verbosity = 4 }},
		{"--logging-format=json", "logging: {format: json}", func(c *Config) { c.LogFormat = LogJSON }},
		{"--master=http://192.0.2.1", "", func(c *Config) { c.Client.Master = "http://192.0.2.1" }},
		{"--proxy_mode=ipvs", "", func(*Config) {}},
		{"--cleanup", "", func(c *Config) { c.Cleanup = true }},
		{"--init-only", "", func(c *Config) { c.InitOnly = true }},
		{"--write-config-to=/w", "", func(c *Config) { c.WriteConfigTo = "/w" }},
		{"--manifests=/m", "", func(c *Config) { c.ManifestsDir = "/m" }},
		{"--drain-timeout=0", "", func(c *Config) { c.DrainTimeout = 0 }},
		{"--drain-timeout-gone=2m", "", func(c *Config) { c.DrainTimeoutGone = 2 * time.Minute }},
		{"--iptables-flavour=nft", "", func(c *Config) { c.IPTablesFlavor = FlavorNFT }},
		{"--answer-ping=false", "", func(c *Config) { c.AnswerPing = false }},
	}
	for _, test := range tests {
		want := defaults()
		test.want(&want)
		if test.flag != "" {
			t.Run(test.flag, func(t *testing.T) {
				got, warnings, err := load(t, test.flag)
				check(t, got, want, warnings, err)
			})
		}
		if test.field != "" {
			t.Run(test.field, func(t *testing.T) {
				got, warnings, err := loadFile(t, test.field)
				check(t, got, want, warnings, err)
			})
		}
	}
}

func check(t *testing.T, got, want Config, warnings []Warning, err error) {
	t.Helper()
	if err != nil || len(warnings) > 0 {
		t.Fatalf("warnings %v, error %v", warnings, err)
	}
	got.ConfigFile = ""
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v\nwant %+v", got, want)
	}
}

func TestInterfaceModes(t *testing.T) {
	got, _, err := load(t, "--detect-local-mode=BridgeInterface", "--pod-bridge-interface=cni0", "--cluster-cidr=nonsense")
	want := DetectLocal{Mode: LocalBridgeInterface, BridgeInterface: "cni0"}
	if err != nil || !reflect.DeepEqual(got.DetectLocal, want) {
		t.Errorf("got %+v, %v", got.DetectLocal, err)
	}
	got, _, err = loadFile(t, "detectLocalMode: InterfaceNamePrefix\ndetectLocal: {interfaceNamePrefix: cali}")
	want = DetectLocal{Mode: LocalInterfaceNamePrefix, InterfaceNamePrefix: "cali"}
	if err != nil || !reflect.DeepEqual(got.DetectLocal, want) {
		t.Errorf("got %+v, %v", got.DetectLocal, err)
	}
}

// TestWarned holds what is accepted with one warning.
func TestWarned(t *testing.T) {
	for _, test := range []struct{ flag, name string }{
		{"--iptables-localhost-nodeports", "--iptables-localhost-nodeports"},
		{"--iptables-sync-period=1s", "--iptables-sync-period"},
		{"--iptables-min-sync-period=1s", "--iptables-min-sync-period"},
		{"--show-hidden-metrics-for-version=1.36", "--show-hidden-metrics-for-version"},
		{"--vmodule=a=1", "--vmodule"},
		{"--log-flush-frequency=1s", "--log-flush-frequency"},
		{"--log-json-split-stream", "--log-json-split-stream"},
		{"--boot-id-file=x", "--boot-id-file"},
		{"--feature-gates=KubeProxyIPVS=true,X=false,AllowServiceExternalIPs=true", "--feature-gates: KubeProxyIPVS, X"},
		{"--healthz-port=10256", "--healthz-port"},
		{"--nodeport-addresses=localhost,primary", "--nodeport-addresses"},
	} {
		_, warnings, err := load(t, test.flag)
		checkWarned(t, test.flag, warnings, err, test.name)
	}
	for _, test := range []struct{ lines, name string }{
		{"iptables: {localhostNodePorts: true}", "iptables.localhostNodePorts"},
		{"iptables: {syncPeriod: 1m}", "iptables.syncPeriod"},
		{"nftables: {masqueradeBit: 15}", "nftables.masqueradeBit"},
		{"nftables: {masqueradeAll: true}", "nftables.masqueradeAll"},
		{"nftables: {minSyncPeriod: 2s}", "nftables.minSyncPeriod"},
		{"showHiddenMetricsForVersion: '1.36'", "showHiddenMetricsForVersion"},
		{"portRange: 1-2", "portRange"},
		{"windowsRunAsService: true", "windowsRunAsService"},
		{"winkernel: {sourceVip: 192.0.2.1}", "winkernel"},
		{"logging: {flushFrequency: 1s}", "logging.flushFrequency"},
		{"logging: {vmodule: [{filePattern: a, verbosity: 1}]}", "logging.vmodule"},
		{"logging: {options: {json: {splitStream: true}}}", "logging.options.json"},
		{"featureGates: {X: true}", "featureGates: X"},
		{"nodePortAddresses: [127.0.0.0/8]", "nodePortAddresses"},
		{"ipvs: {schedular: rr}", `unknown field "ipvs.schedular"`},
		{"mode: ipvs\nmode: ipvs", `"mode" already set`},
	} {
		_, warnings, err := loadFile(t, test.lines)
		checkWarned(t, test.lines, warnings, err, test.name)
	}
	for _, lines := range []string{
		"iptables: {localhostNodePorts: false, syncPeriod: 30s, minSyncPeriod: 1s}",
		"nftables: {masqueradeBit: 14, syncPeriod: 30s, minSyncPeriod: 1s}\nlogging: {flushFrequency: 5s}",
	} {
		if _, warnings, err := loadFile(t, lines); err != nil || len(warnings) > 0 {
			t.Errorf("%s: warnings %v, error %v", lines, warnings, err)
		}
	}
}

func checkWarned(t *testing.T, label string, warnings []Warning, err error, want string) {
	t.Helper()
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), want) {
		t.Errorf("%s: warnings %v, error %v, want one with %q", label, warnings, err, want)
	}
}

// TestRejected holds what stops the program, and what the message must name.
func TestRejected(t *testing.T) {
	for _, test := range []struct{ args, want string }{
		{"--proxy-mode=iptables", `--proxy-mode: "iptables": this proxy has the mode ipvs only: run kube-proxy`},
		{"--proxy-mode=nftables", "run kube-proxy for nftables"},
		{"--proxy-mode=kernelspace", "Windows"},
		{"--proxy-mode=IPVS", "must be ipvs or empty"},
		{"--logtostderr", "--logtostderr"},
		{"--add_dir_header=true", "--add-dir-header"},
		{"--enable-dsr --source-vip=1.2.3.4", "Windows"},
		{"--ipvs-sync-period=0s", "--ipvs-sync-period: 0s: must be more than 0"},
		{"--ipvs-min-sync-period=40s", "not be more than --ipvs-sync-period, which is 30s"},
		{"--ipvs-tcp-timeout=-1s", "--ipvs-tcp-timeout: -1s"},
		{"--ipvs-udp-timeout=500ms", "at least 1s"},
		{"--ipvs-exclude-cidrs=fd00::/8,x", `--ipvs-exclude-cidrs[1]: "x"`},
		{"--cluster-cidr=10.0.0.0/33", `--cluster-cidr[0]: "10.0.0.0/33"`},
		{"--nodeport-addresses=primary,primary", `--nodeport-addresses[1]: "primary": is given twice`},
		{"--nodeport-addresses=eth0", "must be a CIDR or one of primary, localhost, all"},
		{"--iptables-masquerade-bit=32", "--iptables-masquerade-bit: 32: must be from 0 to 31"},
		{"--oom-score-adj=1001", "must be from -1000 to 1000"},
		{"--bind-address=eth0", `--bind-address: "eth0"`},
		{"--healthz-bind-address=0.0.0.0:0", "--healthz-bind-address"},
		{"--metrics-bind-address=localhost:1", "--metrics-bind-address"},
		{"--config-sync-period=0", "--config-sync-period"},
		{"--kube-api-burst=-1", "--kube-api-burst"},
		{"--conntrack-max-per-core=-1", "--conntrack-max-per-core"},
		{"--conntrack-tcp-timeout-established=-1s", "--conntrack-tcp-timeout-established"},
		{"--detect-local-mode=Guess", `--detect-local-mode: "Guess"`},
		{"--detect-local-mode=BridgeInterface", "--pod-bridge-interface"},
		{"--detect-local-mode=InterfaceNamePrefix", "--pod-interface-name-prefix"},
		{"--feature-gates=X=maybe", "X=maybe"},
		{"--logging-format=xml", "--logging-format"},
		{"--drain-timeout=-1s", "--drain-timeout"},
		{"--iptables-flavour=ebpf", "--iptables-flavour"},
		{"--config=/does/not/exist", "/does/not/exist"},
	} {
		_, _, err := load(t, strings.Fields(test.args)...)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.args, err, test.want)
		}
	}
	if _, _, err := load(t, "--hostname-override= "); err == nil {
		t.Error("a blank host name is accepted")
	}
	for _, test := range []struct{ lines, want string }{
		{"ipvs: {syncPeriod: -1s}", "ipvs.syncPeriod: -1s"},
		{"nodePortAddresses: [x]", `nodePortAddresses[0]: "x"`},
		{"mode: nftables", `mode: "nftables"`},
		{"ipvs: {syncPeriod: [1]}", "cannot unmarshal array"},
		{"ipvs: [", "yaml"},
	} {
		_, _, err := loadFile(t, test.lines)
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: error %v, want %q", test.lines, err, test.want)
		}
	}
}

func TestViolationsComeTogether(t *testing.T) {
	_, _, err := loadFile(t, `
mode: iptables
bindAddress: x
ipvs: {syncPeriod: -1s, excludeCIDRs: [a, 10.0.0.0/8, b]}
conntrack: {min: -1}
`, "--drain-timeout=-1s")
	if err == nil {
		t.Fatal("no error")
	}
	for _, want := range []string{`mode: "iptables"`, `bindAddress: "x"`, "ipvs.syncPeriod: -1s",
		`ipvs.excludeCIDRs[0]: "a"`, `ipvs.excludeCIDRs[2]: "b"`, "conntrack.min: -1", "--drain-timeout: -1s"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is missing in: %v", want, err)
		}
	}
}

func TestWrongKind(t *testing.T) {
	for _, text := range []string{"", "a: b", "kind: KubeProxyConfiguration", "apiVersion: v1\nkind: Service",
		"apiVersion: kubeproxy.config.k8s.io/v1alpha1",
		"apiVersion: kubeproxy.config.k8s.io/v1beta1\nkind: KubeProxyConfiguration"} {
		path := filepath.Join(t.TempDir(), "c")
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		_, _, err := load(t, "--config", path)
		if err == nil || !strings.Contains(err.Error(), "apiVersion: kubeproxy.config.k8s.io/v1alpha1") || !strings.Contains(err.Error(), path) {
			t.Errorf("%q: error %v", text, err)
		}
	}
}

func TestFlagsBesideAFile(t *testing.T) {
	got, warnings, err := loadFile(t, "logging: {verbosity: 1, format: text}\nhostnameOverride: f\nipvs: {scheduler: rr}",
		"-v=5", "--logging-format=json", "--hostname-override=g", "--master=http://m", "--drain-timeout=1s",
		"--ipvs-scheduler=wlc", "--healthz-port=1")
	if err != nil {
		t.Fatal(err)
	}
	if got.Verbosity != 5 || !got.Debug() || got.LogFormat != LogJSON || got.NodeName != "g" ||
		got.Client.Master != "http://m" || got.DrainTimeout != time.Second {
		t.Errorf("a flag does not count: %+v", got)
	}
	if got.IPVS.Scheduler != "rr" || got.HealthzBindAddress.Port() != 10256 {
		t.Errorf("a flag counts: %+v", got)
	}
	want := []Warning{{"--healthz-port", "ignored because of --config"}, {"--ipvs-scheduler", "ignored because of --config"}}
	if !reflect.DeepEqual(warnings, want) {
		t.Errorf("warnings %v, want %v", warnings, want)
	}
}

func TestDeprecatedPorts(t *testing.T) {
	for args, want := range map[string]string{
		"--healthz-port=0":                                      "invalid AddrPort",
		"--healthz-port=99":                                     "0.0.0.0:99",
		"--healthz-port=99 --bind-address=2001:db8::1":          "[::]:99",
		"--healthz-port=99 --healthz-bind-address=192.0.2.1:88": "192.0.2.1:88",
		"--healthz-port=0 --healthz-bind-address=192.0.2.1:88":  "invalid AddrPort",
	} {
		got, _, err := load(t, strings.Fields(args)...)
		if err != nil || got.HealthzBindAddress.String() != want {
			t.Errorf("%s: got %s, %v, want %s", args, got.HealthzBindAddress, err, want)
		}
	}
}

func TestHostWithoutAName(t *testing.T) {
	set := pflag.NewFlagSet("kube-ipvs", pflag.ContinueOnError)
	f := AddFlags(set)
	f.hostname = func() (string, error) { return "", errors.New("refused") }
	if _, _, err := f.Load(); err == nil || !strings.Contains(err.Error(), "--hostname-override") {
		t.Errorf("error %v", err)
	}
}

func TestWriteFile(t *testing.T) {
	want, _, err := load(t, "--hostname-override=n", "--nodeport-addresses=primary,192.0.2.0/24", "--cluster-cidr=10.0.0.0/8,fd00::/8",
		"--feature-gates=AllowServiceExternalIPs=false", "--ipvs-exclude-cidrs=192.0.2.0/24", "--conntrack-udp-timeout=7s",
		"--conntrack-max-per-core=0", "--bind-address=192.0.2.1", "--healthz-bind-address=[::]:1", "-v=3", "--logging-format=json",
		"--ipvs-scheduler=mh", "--ipvs-udp-timeout=1m", "--masquerade-all", "--iptables-masquerade-bit=3", "--kubeconfig=/k",
		"--kube-api-qps=9", "--ipvs-strict-arp", "--profiling", "--oom-score-adj=5")
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(t.TempDir(), "written.yaml")
	if err := want.WriteFile(path); err != nil {
		t.Fatal(err)
	}
	got, warnings, err := load(t, "--config", path)
	want.ConfigFile = path
	if err != nil || len(warnings) > 0 || !reflect.DeepEqual(got, want) {
		t.Errorf("got  %+v, %v, %v\nwant %+v", got, warnings, err, want)
	}
}
