package main

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/config"
	"github.com/kube-ipvs/kube-ipvs/conntrack"
	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/iptables"
	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/proxy"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/vip"
	"go.uber.org/zap"
)

// node is this node's kernel, ready to be programmed.
type node struct {
	options *desired.Options
	layers  proxy.Layers
}

// probeTime bounds the checks at the start. They take a fraction of a second on
// a common node, but programs start slowly on a small and busy one.
const probeTime = 30 * time.Second

// prepare checks that the kernel has everything that is needed, before anything
// on the node is changed, and sets the sysctls.
func prepare(ctx context.Context, cfg config.Config, log *zap.Logger) (*node, error) {
	scheduler, err := desired.ParseScheduler(cfg.IPVS.Scheduler)
	if err != nil {
		return nil, usageError{fmt.Errorf("ipvs.scheduler: %w", err)}
	}
	if err := privileged(); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeout(ctx, probeTime)
	defer cancel()
	rules, families, err := openRules(ctx, cfg, log)
	if err != nil {
		return nil, err
	}
	layers, err := openLayers(cfg, scheduler)
	if err != nil {
		return nil, err
	}
	layers.Rules = rules
	if err := rules.Probe(ctx); err != nil {
		return nil, fmt.Errorf("iptables: %w", err)
	}
	settings, err := newSettings(cfg, families, layers.Servers.(*ipvs.Table))
	if err != nil {
		return nil, err
	}
	if err := settings.first(log); err != nil {
		return nil, err
	}
	layers.Settings = settings
	o := options(cfg, scheduler, families)
	o.RandomFully = rules.HasRandomFully()
	return &node{options: o, layers: layers}, nil
}

// openRules picks the iptables variant and the families that work with it.
func openRules(ctx context.Context, cfg config.Config, log *zap.Logger) (*iptables.Table, []state.Family, error) {
	name := ""
	if cfg.IPTablesFlavor != config.FlavorAuto {
		name = "iptables-" + string(cfg.IPTablesFlavor)
	}
	flavour, reason, err := iptables.Detect(ctx, name)
	if err != nil {
		return nil, nil, err
	}
	families := servable(flavour.Families)
	log.Info("iptables", zap.String("variant", flavour.Name), zap.String("why", reason), zap.Stringers("families", families))
	return iptables.Open(flavour), families, nil
}

// servable leaves out IPv6 where the kernel has it not or has it switched off.
func servable(families []state.Family) []state.Family {
	off, err := os.ReadFile("/proc/sys/net/ipv6/conf/all/disable_ipv6")
	if err == nil && strings.TrimSpace(string(off)) == "0" {
		return families
	}
	return slices.DeleteFunc(slices.Clone(families), func(f state.Family) bool { return f == state.IPv6 })
}

// openLayers opens the kernel's tables and tries what will be needed of them.
func openLayers(cfg config.Config, scheduler desired.Scheduler) (proxy.Layers, error) {
	sets, err := ipset.Open()
	if err != nil {
		return proxy.Layers{}, err
	}
	vips, err := vip.Open(vip.DefaultDevice)
	if err != nil {
		return proxy.Layers{}, err
	}
	servers, err := ipvs.Open(ipvs.Config{
		Limits: ipvs.Limits{Listed: cfg.DrainTimeout, Gone: cfg.DrainTimeoutGone, Settle: ipvs.DefaultLimits.Settle},
		Owned:  owned(sets),
		Bound:  bound(vips),
		Now:    time.Now,
	})
	if err != nil {
		return proxy.Layers{}, err
	}
	if err := errors.Join(sets.Probe(), vips.Probe(), servers.Probe(scheduler.Name)); err != nil {
		return proxy.Layers{}, err
	}
	return proxy.Layers{Sets: sets, VIPs: vips, Servers: servers, Flows: conntrack.Open()}, nil
}

// owned tells from the kernel's state which virtual servers are ours: those in
// the ledger, and those with a mark of ours.
func owned(sets *ipset.Table) func(state.ServerKey) bool {
	return func(k state.ServerKey) bool {
		if k.Mark != 0 {
			return desired.OurMark(k.Mark)
		}
		_, listed := sets.Entries(desired.Ledger(k.Family()))[state.Entry{Addr: k.Addr, Protocol: k.Protocol, Port: k.Port}]
		return listed
	}
}

// bound tells which addresses are on our device.
func bound(vips *vip.Table) func(netip.Addr) bool {
	return func(a netip.Addr) bool {
		_, there := vips.Addresses()[a]
		return there
	}
}

// options translates the configuration into what decides about Services.
func options(cfg config.Config, scheduler desired.Scheduler, families []state.Family) *desired.Options {
	return &desired.Options{
		Families:      families,
		Scheduler:     scheduler,
		MasqueradeBit: uint(cfg.MasqueradeBit),
		MasqueradeAll: cfg.MasqueradeAll,
		Detector:      detector(cfg.DetectLocal),
		NodePorts: desired.NodePortAddresses{
			CIDRs: cfg.NodePorts.CIDRs, Primary: cfg.NodePorts.Primary, Localhost: cfg.NodePorts.Localhost,
			All: cfg.NodePorts.All,
		},
		IgnoreExternalIPs: !cfg.ExternalIPs,
		AnswerPing:        cfg.AnswerPing,
	}
}

func detector(d config.DetectLocal) desired.Detector {
	switch d.Mode {
	case config.LocalNodeCIDR:
		return desired.Detector{NodeCIDRs: true}
	case config.LocalBridgeInterface:
		return desired.Detector{Interface: d.BridgeInterface}
	case config.LocalInterfaceNamePrefix:
		return desired.Detector{Interface: d.InterfaceNamePrefix + "+"}
	}
	return desired.Detector{CIDRs: append([]netip.Prefix(nil), d.ClusterCIDRs...)}
}
