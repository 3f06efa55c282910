package config

import (
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func TestNodeName(t *testing.T) {
	for name, c := range map[string]struct {
		flag, file, want string
	}{
		"S9 the host's, trimmed and in lower case": {"", "", "host"},
		"S9 the flag's":               {"--hostname-override= Node-1 ", "", "node-1"},
		"S9 the file's":               {"", "hostnameOverride: ' Node-2 '", "node-2"},
		"S9 the flag before the file": {"--hostname-override=Node-1", "hostnameOverride: Node-2", "node-1"},
	} {
		t.Run(name, func(t *testing.T) {
			var args []string
			if c.flag != "" {
				args = append(args, c.flag)
			}
			got, _, err := load(t, args...)
			if c.file != "" {
				got, _, err = loadFile(t, c.file, args...)
			}
			if err != nil || got.NodeName != c.want {
				t.Errorf("got %q, %v, want %q", got.NodeName, err, c.want)
			}
		})
	}
	if _, _, err := load(t, "--hostname-override= \t "); err == nil || !strings.Contains(err.Error(), "--hostname-override") {
		t.Errorf("S9: a blank name: error %v", err)
	}
}

func TestNodePortWords(t *testing.T) {
	for name, c := range map[string]struct {
		list   string
		want   NodePorts
		warned bool
		wrong  string
	}{
		"S59 nothing is all":              {"[]", NodePorts{All: true}, false, ""},
		"S60 all":                         {"[all]", NodePorts{All: true}, false, ""},
		"S60 primary":                     {"[primary]", NodePorts{Primary: true}, false, ""},
		"S60 primary and CIDRs":           {"[primary, 192.0.2.9/24, '2001:db8::/32']", NodePorts{Primary: true, CIDRs: prefixes("192.0.2.0/24", "2001:db8::/32")}, false, ""},
		"S60 S64 localhost":               {"[localhost]", NodePorts{Localhost: true}, true, ""},
		"S60 S64 a CIDR of loopback":      {"[127.0.0.0/8, '::1/128']", NodePorts{CIDRs: prefixes("127.0.0.0/8", "::1/128")}, true, ""},
		"S60 S64 localhost and primary":   {"[localhost, primary]", NodePorts{Localhost: true, Primary: true}, true, ""},
		"S60 primary twice":               {"[primary, 10.0.0.0/8, primary]", NodePorts{}, false, "nodePortAddresses[2]"},
		"S60 localhost twice":             {"[localhost, localhost]", NodePorts{}, true, "nodePortAddresses[1]"},
		"S60 all twice":                   {"[all, all]", NodePorts{}, false, "nodePortAddresses[1]"},
		"S60 an address without a length": {"[192.0.2.1]", NodePorts{}, false, "192.0.2.1"},
		"S60 a word in capitals":          {"[PRIMARY]", NodePorts{}, false, "PRIMARY"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := loadFile(t, "nodePortAddresses: "+c.list)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want one with %q", err, c.wrong)
				}
				return
			}
			if err != nil || !reflect.DeepEqual(got.NodePorts, c.want) {
				t.Errorf("got %+v, %v, want %+v", got.NodePorts, err, c.want)
			}
			if (len(warnings) > 0) != c.warned {
				t.Errorf("warnings %v", warnings)
			}
		})
	}
}

func TestDetectors(t *testing.T) {
	const bridge = "detectLocalMode: BridgeInterface\n"
	const prefix = "detectLocalMode: InterfaceNamePrefix\n"
	for name, c := range map[string]struct {
		lines string
		want  DetectLocal
		wrong string
	}{
		"S81 ClusterCIDR is the default": {"clusterCIDR: 10.244.0.0/16,fd00:244::/56",
			DetectLocal{Mode: LocalClusterCIDR, ClusterCIDRs: prefixes("10.244.0.0/16", "fd00:244::/56")}, ""},
		"S81 one family": {"clusterCIDR: fd00:244::/56",
			DetectLocal{Mode: LocalClusterCIDR, ClusterCIDRs: prefixes("fd00:244::/56")}, ""},
		"S84 no CIDR, no detector": {"clusterCIDR: ''", DetectLocal{Mode: LocalClusterCIDR}, ""},
		"S81 no CIDR at all":       {"clusterCIDR: 10.244.0.0", DetectLocal{}, "clusterCIDR[0]"},
		"S82 NodeCIDR":             {"detectLocalMode: NodeCIDR\nclusterCIDR: 10.0.0.0/8", DetectLocal{Mode: LocalNodeCIDR}, ""},
		"S83 a bridge": {bridge + "detectLocal: {bridgeInterface: cni0, interfaceNamePrefix: x}",
			DetectLocal{Mode: LocalBridgeInterface, BridgeInterface: "cni0", InterfaceNamePrefix: "x"}, ""},
		"S83 a prefix": {prefix + "detectLocal: {interfaceNamePrefix: veth}",
			DetectLocal{Mode: LocalInterfaceNamePrefix, InterfaceNamePrefix: "veth"}, ""},
		"S83 no bridge":     {bridge, DetectLocal{}, "detectLocal.bridgeInterface"},
		"S83 no prefix":     {prefix, DetectLocal{}, "detectLocal.interfaceNamePrefix"},
		"S83 a long bridge": {bridge + "detectLocal: {bridgeInterface: abcdefghijklmnop}", DetectLocal{}, "detectLocal.bridgeInterface"},
		"S81 another mode":  {"detectLocalMode: Guess", DetectLocal{}, "detectLocalMode"},
	} {
		t.Run(name, func(t *testing.T) {
			got, warnings, err := loadFile(t, c.lines)
			if c.wrong != "" {
				if err == nil || !strings.Contains(err.Error(), c.wrong) {
					t.Errorf("error %v, want one with %q", err, c.wrong)
				}
				return
			}
			if err != nil || len(warnings) > 0 || !reflect.DeepEqual(got.DetectLocal, c.want) {
				t.Errorf("got %+v, %v, %v, want %+v", got.DetectLocal, warnings, err, c.want)
			}
		})
	}
}

func TestMasqueradeFields(t *testing.T) {
	got, _, err := loadFile(t, "iptables: {masqueradeBit: 9, masqueradeAll: true}")
	if err != nil || got.MasqueradeBit != 9 || !got.MasqueradeAll {
		t.Errorf("S73, S75: bit %d, all %t, %v", got.MasqueradeBit, got.MasqueradeAll, err)
	}
	if got, _, err := load(t); err != nil || got.MasqueradeBit != 14 || got.MasqueradeAll {
		t.Errorf("S73, S75: by default bit %d, all %t, %v", got.MasqueradeBit, got.MasqueradeAll, err)
	}
}

func TestSyncPeriods(t *testing.T) {
	got, _, err := loadFile(t, "ipvs: {syncPeriod: 20s, minSyncPeriod: 2s}")
	if err != nil || got.IPVS.SyncPeriod.Seconds() != 20 || got.IPVS.MinSyncPeriod.Seconds() != 2 {
		t.Errorf("S91: %+v, %v", got.IPVS, err)
	}
}

func TestLocalhostNodePortsAreWarnedOf(t *testing.T) {
	_, warnings, err := loadFile(t, "iptables: {localhostNodePorts: true}")
	if err != nil || len(warnings) != 1 || !strings.Contains(warnings[0].String(), "loopback") {
		t.Errorf("S64: warnings %v, %v", warnings, err)
	}
	if !isLoopback(netip.MustParsePrefix("127.1.0.0/16")) || isLoopback(netip.MustParsePrefix("128.0.0.0/8")) {
		t.Error("S64: a prefix is taken for another one")
	}
}
