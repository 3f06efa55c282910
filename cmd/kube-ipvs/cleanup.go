package main

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipset"
	"github.com/kube-ipvs/kube-ipvs/iptables"
	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/vip"
	"go.uber.org/zap"
)

// cleanup removes what is ours and nothing else. The device goes first, so that
// no port of the host is open at a Service address for a moment, then the
// virtual servers, the rules and, since they tell which virtual servers are
// ours, the sets last. It may be repeated.
func cleanup(ctx context.Context, log *zap.Logger) error {
	if err := privileged(); err != nil {
		return err
	}
	release, err := alone()
	if err != nil {
		return err
	}
	defer release()
	sets, err := ipset.Open()
	if err != nil {
		return err
	}
	vips, err := vip.Open(vip.DefaultDevice)
	if err != nil {
		return err
	}
	servers, err := ipvs.Open(ipvs.Config{Limits: ipvs.DefaultLimits, Owned: owned(sets), Bound: bound(vips), Now: time.Now})
	switch {
	case errors.Is(err, ipvs.ErrNoIPVS):
		servers = nil
	case err != nil:
		return err
	}
	var errs []error
	step := func(what string, do func(context.Context) ([]state.Op, error)) {
		done, err := do(ctx)
		if len(done) > 0 {
			log.Info("removed", zap.String("what", what), zap.Int("operations", len(done)))
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("clean up %s: %w", what, err))
		}
	}
	if err := sets.Read(ctx); err != nil {
		return fmt.Errorf("clean up: %w", err)
	}
	step("device", vips.Remove)
	if servers != nil {
		step("virtual servers", func(ctx context.Context) ([]state.Op, error) { return removeServers(ctx, servers) })
	}
	// The sets tell which virtual servers are ours, so they stay until those are
	// gone.
	serversGone := len(errs) == 0
	step("iptables rules", func(ctx context.Context) ([]state.Op, error) { return iptables.Remove(ctx, "") })
	if serversGone {
		step("sets", sets.Destroy)
	}
	return errors.Join(errs...)
}

func removeServers(ctx context.Context, servers *ipvs.Table) ([]state.Op, error) {
	if err := servers.Read(ctx); err != nil {
		return nil, err
	}
	return servers.Prune(ctx, state.NewNode(), &state.Change{All: true})
}
