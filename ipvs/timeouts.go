package ipvs

import (
	"fmt"
	"time"
)

// with returns t with the values of o that are not 0.
func (t Timeouts) with(o Timeouts) Timeouts {
	pick := func(old, new time.Duration) time.Duration {
		if new != 0 {
			return new
		}
		return old
	}
	return Timeouts{TCP: pick(t.TCP, o.TCP), TCPFin: pick(t.TCPFin, o.TCPFin), UDP: pick(t.UDP, o.UDP)}
}

// String returns the time-outs as "ipvsadm -L --timeout" prints them.
func (t Timeouts) String() string {
	return fmt.Sprintf("Timeout (tcp tcpfin udp): %d %d %d",
		int(t.TCP.Seconds()), int(t.TCPFin.Seconds()), int(t.UDP.Seconds()))
}

// EnsureTimeouts sets the kernel's connection time-outs and reads them back.
// It returns what they were before and whether they had to be changed.
func (t *Table) EnsureTimeouts(want Timeouts) (before Timeouts, changed bool, err error) {
	before, err = t.kernel.Timeouts()
	if err != nil {
		return before, false, fmt.Errorf("read IPVS time-outs: %w", err)
	}
	target := before.with(want)
	if target == before {
		return before, false, nil
	}
	if err := t.kernel.SetTimeouts(target); err != nil {
		return before, false, fmt.Errorf("set IPVS time-outs: %w", err)
	}
	after, err := t.kernel.Timeouts()
	if err != nil {
		return before, true, fmt.Errorf("read IPVS time-outs back: %w", err)
	}
	if after != target {
		return before, true, fmt.Errorf("IPVS time-outs are %s after setting %s", after, target)
	}
	return before, true, nil
}
