package ipset

import (
	"errors"
	"fmt"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// kernel is what a Table asks of the kernel. A set that does not exist is
// unix.ENOENT. A set that exists as asked is created with success, an entry
// that exists is added with success and gets the new mark, an entry that does
// not exist is deleted with success. A *refusal tells which entry failed.
type kernel interface {
	headers() (map[string]header, error)
	entries(set string) (map[state.Entry]uint32, error)
	create(set string, s spec) error
	destroy(set string) error
	swap(a, b string) error
	add(set string, members []member) error
	del(set string, members []member) error
	close()
}

const (
	// timeout in seconds for the kernel's answer, which it writes before the
	// request has been sent.
	timeout = 5
	// attempts to get a list that nothing disturbs.
	attempts = 5
)

// errInterrupted says that a list is incomplete.
var errInterrupted = errors.New("the kernel interrupted the list")

// linux is the real kernel.
type linux struct{ socket *nl.NetlinkSocket }

// open opens a socket in the network namespace of the calling thread.
func open() (*linux, error) {
	s, err := nl.Subscribe(unix.NETLINK_NETFILTER)
	if err != nil {
		return nil, err
	}
	limit := unix.Timeval{Sec: timeout}
	return &linux{s}, errors.Join(s.SetSendTimeout(&limit), s.SetReceiveTimeout(&limit))
}

func (l *linux) close() { l.socket.Close() }

func (l *linux) create(set string, s spec) error {
	return l.do(nl.IPSET_CMD_CREATE, createMessage(set, s))
}

// destroy asks with NLM_F_EXCL, without which newer kernels say nothing of a
// set that does not exist.
func (l *linux) destroy(set string) error {
	_, err := l.exchange(nl.IPSET_CMD_DESTROY, unix.NLM_F_ACK|unix.NLM_F_EXCL, setMessage(set))
	return err
}

func (l *linux) swap(a, b string) error {
	return l.do(nl.IPSET_CMD_SWAP, swapMessage(a, b))
}

func (l *linux) add(set string, members []member) error {
	return l.do(nl.IPSET_CMD_ADD, membersMessage(set, members))
}

func (l *linux) del(set string, members []member) error {
	return l.do(nl.IPSET_CMD_DEL, membersMessage(set, members))
}

func (l *linux) headers() (map[string]header, error) {
	msgs, err := l.list(headersMessage())
	if err != nil {
		return nil, err
	}
	found := map[string]header{}
	for _, msg := range msgs {
		name, h, err := parseHeader(msg)
		if err != nil {
			return nil, err
		}
		if name != "" {
			found[name] = h
		}
	}
	return found, nil
}

func (l *linux) entries(set string) (map[state.Entry]uint32, error) {
	msgs, err := l.list(setMessage(set))
	if err != nil {
		return nil, err
	}
	found := map[state.Entry]uint32{}
	for _, msg := range msgs {
		if err := parseMembers(msg, func(m member) { found[m.entry] = m.mark }); err != nil {
			return nil, err
		}
	}
	return found, nil
}

// do sends a request that changes something.
func (l *linux) do(command int, payload []byte) error {
	_, err := l.exchange(command, unix.NLM_F_ACK, payload)
	return err
}

// list sends a request for a list, again if the answer was incomplete.
func (l *linux) list(payload []byte) (msgs [][]byte, err error) {
	for range attempts {
		msgs, err = l.exchange(nl.IPSET_CMD_LIST, unix.NLM_F_DUMP, payload)
		if !errors.Is(err, errInterrupted) && !errors.Is(err, unix.EINTR) {
			break
		}
	}
	return msgs, err
}

// exchange sends one request and returns the messages of the answer.
func (l *linux) exchange(command, flags int, payload []byte) ([][]byte, error) {
	l.socket.Lock()
	defer l.socket.Unlock()
	req := nl.NewNetlinkRequest(unix.NFNL_SUBSYS_IPSET<<8|command, flags)
	req.AddRawData(payload)
	if err := l.socket.Send(req); err != nil {
		return nil, fmt.Errorf("send to the kernel: %w", err)
	}
	answer := answer{seq: req.Seq}
	for !answer.complete {
		msgs, from, err := l.socket.Receive()
		switch {
		case errors.Is(err, unix.ENOBUFS):
			answer.lossy = true
		case err != nil:
			return nil, fmt.Errorf("no answer from the kernel: %w", err)
		case from.Pid != nl.PidKernel:
		default:
			for _, m := range msgs {
				answer.take(m.Header.Seq, m.Header.Type, m.Header.Flags, m.Data)
			}
		}
	}
	return answer.result()
}

// answer collects what the kernel says to one request.
type answer struct {
	seq      uint32
	msgs     [][]byte
	err      error
	lossy    bool
	complete bool
}

// take takes the next message. What belongs to an earlier request, which was
// given up, is dropped.
func (a *answer) take(seq uint32, kind, flags uint16, data []byte) {
	if seq != a.seq || a.complete {
		return
	}
	a.lossy = a.lossy || flags&unix.NLM_F_DUMP_INTR != 0
	switch kind {
	case unix.NLMSG_ERROR:
		a.err, a.complete = parseRefusal(data), true
	case unix.NLMSG_DONE:
		a.complete = true
		if len(data) >= 4 {
			a.err = parseRefusal(data[:4])
		}
	default:
		a.msgs = append(a.msgs, data)
	}
}

// result returns the answer, never a part of one.
func (a *answer) result() ([][]byte, error) {
	switch {
	case a.err != nil:
		return nil, a.err
	case a.lossy && len(a.msgs) > 0:
		return nil, errInterrupted
	}
	return a.msgs, nil
}
