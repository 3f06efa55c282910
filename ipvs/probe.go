package ipvs

import (
	"errors"
	"fmt"
	"net/netip"

	"github.com/kube-ipvs/kube-ipvs/state"
	"golang.org/x/sys/unix"
)

// probeAddr is an address for documentation (RFC 5737), which nobody serves.
var probeAddr = netip.MustParseAddr("198.51.100.0")

// Probe tries a scheduler with a virtual server that it takes away again. The
// error names what is missing.
func (t *Table) Probe(scheduler string) error {
	op := Op{verb: addServer, server: Server{
		Key:       state.ServerKey{Addr: probeAddr, Protocol: state.TCP, Port: 20000},
		Scheduler: scheduler,
	}}
	err := t.kernel.AddServer(op.server)
	if err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("try IPVS scheduler %s: %w", scheduler, explain(err, op))
	}
	if err := t.kernel.DelServer(op.server.Key); err != nil && !gone(err) {
		return fmt.Errorf("remove the trial of IPVS scheduler %s: %w", scheduler, err)
	}
	return nil
}
