package main

import (
	"fmt"
	"runtime"
	"slices"

	"github.com/kube-ipvs/kube-ipvs/config"
	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/sysctl"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// settings are the sysctls and IPVS time-outs that the kernel must have. Other
// programs of a node change such things, so they are looked at again.
type settings struct {
	sysctls  []sysctl.Setting
	servers  *ipvs.Table
	timeouts ipvs.Timeouts
}

func newSettings(cfg config.Config, families []state.Family, servers *ipvs.Table) (*settings, error) {
	var uts unix.Utsname
	if err := unix.Uname(&uts); err != nil {
		return nil, fmt.Errorf("uname: %w", err)
	}
	kernel, err := sysctl.ParseVersion(unix.ByteSliceToString(uts.Release[:]))
	if err != nil {
		return nil, err
	}
	t, ct := cfg.IPVS, cfg.Conntrack
	return &settings{
		sysctls: append(sysctl.IPVS(kernel, sysctl.Options{
			IPv6:      slices.Contains(families, state.IPv6),
			StrictARP: t.StrictARP,
		}), sysctl.Conntrack(sysctl.ConntrackOptions{
			MaxPerCore: ct.MaxPerCore, Min: ct.Min, CPUs: runtime.NumCPU(),
			TCPEstablished: ct.TCPEstablishedTimeout, TCPCloseWait: ct.TCPCloseWaitTimeout,
			UDP: ct.UDPTimeout, UDPStream: ct.UDPStreamTimeout, TCPBeLiberal: ct.TCPBeLiberal,
		})...),
		servers:  servers,
		timeouts: ipvs.Timeouts{TCP: t.TCPTimeout, TCPFin: t.TCPFinTimeout, UDP: t.UDPTimeout},
	}, nil
}

// first sets everything and logs each change once, with the value to go back
// to.
func (s *settings) first(log *zap.Logger) error {
	changes, err := sysctl.Ensure("/proc/sys", s.sysctls)
	for _, c := range changes {
		log.Info("sysctl changed", zap.String("key", c.Key), zap.Int("from", c.Old), zap.Int("to", c.New))
	}
	if err != nil {
		return err
	}
	before, changed, err := s.servers.EnsureTimeouts(s.timeouts)
	if changed {
		log.Info("IPVS time-outs changed", zap.Stringer("from", before))
	}
	return err
}

// Ensure sets what is not as it must be.
func (s *settings) Ensure() ([]state.Op, error) {
	changes, err := sysctl.Ensure("/proc/sys", s.sysctls)
	var done []state.Op
	for _, c := range changes {
		done = append(done, c)
	}
	if err != nil {
		return done, err
	}
	_, changed, err := s.servers.EnsureTimeouts(s.timeouts)
	if changed {
		done = append(done, s.timeouts)
	}
	return done, err
}
