package main

import (
	"net/netip"
	"reflect"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	logtest "go.uber.org/zap/zaptest/observer"

	"github.com/kube-ipvs/kube-ipvs/config"
	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/state"
)

func TestDetector(t *testing.T) {
	pods := []netip.Prefix{netip.MustParsePrefix("10.244.0.0/16")}
	for name, c := range map[string]struct {
		in   config.DetectLocal
		want desired.Detector
	}{
		"S81 cluster CIDRs":     {config.DetectLocal{Mode: config.LocalClusterCIDR, ClusterCIDRs: pods}, desired.Detector{CIDRs: pods}},
		"S82 the node's":        {config.DetectLocal{Mode: config.LocalNodeCIDR}, desired.Detector{NodeCIDRs: true}},
		"S83 a bridge":          {config.DetectLocal{Mode: config.LocalBridgeInterface, BridgeInterface: "cni0"}, desired.Detector{Interface: "cni0"}},
		"S83 a prefix":          {config.DetectLocal{Mode: config.LocalInterfaceNamePrefix, InterfaceNamePrefix: "veth"}, desired.Detector{Interface: "veth+"}},
		"S84 no detector known": {config.DetectLocal{Mode: config.LocalClusterCIDR}, desired.Detector{}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := detector(c.in); !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
		})
	}
}

// warnings notes the Events that are sent.
type warnings []string

func (w *warnings) Warn(service state.Name, _, reason, _ string) {
	*w = append(*w, service.String()+" "+reason)
}

// TestS20OneEventForAProblem: a problem that lasts is told once, also when
// another joins it, and again if it comes back.
func TestS20OneEventForAProblem(t *testing.T) {
	core, logs := logtest.New(zapcore.InfoLevel)
	sent := &warnings{}
	e := newEvents(nil, zap.New(core))
	e.recorder = sent
	web := state.Name{Namespace: "shop", Name: "web"}
	claimed := desired.Problem{Service: web, Reason: desired.ReasonClaimed, Message: "taken"}
	invalid := desired.Problem{Service: web, Reason: desired.ReasonInvalid, Message: "odd"}
	for _, problems := range [][]desired.Problem{{claimed}, {claimed}, {claimed, invalid}, {invalid}, nil, {claimed}} {
		e.tell(web, problems)
	}
	want := warnings{"shop/web AddressClaimedByOther", "shop/web InvalidService", "shop/web AddressClaimedByOther"}
	if !reflect.DeepEqual(*sent, want) || logs.Len() != len(want) {
		t.Errorf("got %q and %d lines, want %q", *sent, logs.Len(), want)
	}
}
