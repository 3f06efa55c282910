package conntrack

import (
	"context"
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// kernel is what Table asks of connection tracking.
type kernel interface {
	// dump hands over a family's entries one by one: those that the filter
	// lets pass, and perhaps others. Its error is errInterrupted if there may
	// be more.
	dump(context.Context, state.Family, filter, func(Flow)) error
	// delete deletes an entry; that it is gone is no error.
	delete(context.Context, Flow) error
}

// netfilter is the running kernel.
type netfilter struct{}

func (netfilter) dump(ctx context.Context, f state.Family, want filter, found func(Flow)) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	request := newRequest(nl.IPCTNL_MSG_CT_GET, unix.NLM_F_DUMP, f, want.encode())
	err := request.ExecuteIter(unix.NETLINK_NETFILTER, subsystem|nl.IPCTNL_MSG_CT_NEW, func(message []byte) bool {
		if flow, ok := decode(message); ok {
			found(flow)
		}
		return ctx.Err() == nil
	})
	switch {
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, nl.ErrDumpInterrupted), errors.Is(err, unix.EINTR):
		return errInterrupted
	}
	return explain(err)
}

func (netfilter) delete(ctx context.Context, flow Flow) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	family := state.FamilyOf(flow.Destination.Addr())
	request := newRequest(nl.IPCTNL_MSG_CT_DELETE, unix.NLM_F_ACK, family, identify(flow))
	_, err := request.Execute(unix.NETLINK_NETFILTER, 0)
	if errors.Is(err, unix.ENOENT) {
		return nil
	}
	return explain(err)
}

// subsystem is ctnetlink's part of a message's type.
const subsystem = unix.NFNL_SUBSYS_CTNETLINK << 8

func newRequest(command, flags int, f state.Family, data []nl.NetlinkRequestData) *nl.NetlinkRequest {
	family := uint8(unix.AF_INET)
	if f == state.IPv6 {
		family = unix.AF_INET6
	}
	request := nl.NewNetlinkRequest(subsystem|command, flags)
	request.AddData(&nl.Nfgenmsg{NfgenFamily: family, Version: nl.NFNETLINK_V0})
	for _, d := range data {
		request.AddData(d)
	}
	return request
}

// explain says what to do about a kernel without ctnetlink, which refuses its
// messages as invalid.
func explain(err error) error {
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EPROTONOSUPPORT) {
		return fmt.Errorf("%w: load the kernel module nf_conntrack_netlink if it is missing", err)
	}
	return err
}
