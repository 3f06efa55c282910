package ipset

import (
	"encoding/binary"
	"errors"
	"testing"

	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"

	"github.com/kube-ipvs/kube-ipvs/state"
)

var someMembers = []member{
	{entry: addr("10.0.0.1")},
	{entry: network("fd00::/8")},
	{port(state.TCP, "203.0.113.1:80"), 0x101},
	{entry: portNet(state.UDP, "[fd00::1]:53", "2001:db8::/32")},
	{entry: portNet(state.SCTP, "10.0.0.1:53", "10.0.0.1/32")},
}

func TestMembersSurviveTheWire(t *testing.T) {
	var got []member
	err := parseMembers(membersMessage("KIPVS-A", someMembers), func(m member) { got = append(got, m) })
	if err != nil {
		t.Fatal(err)
	}
	if len(got) != len(someMembers) {
		t.Fatalf("got %v, want %v", got, someMembers)
	}
	for i, m := range someMembers {
		if got[i] != m {
			t.Errorf("got %s, want %s", got[i], m)
		}
	}
}

// TestBatchFits holds the largest message against the 16 bits of an
// attribute's length.
func TestBatchFits(t *testing.T) {
	largest := member{portNet(state.SCTP, "[2001:db8::1]:65535", "2001:db8::/32"), 1}
	batch := make([]member, batchSize)
	for i := range batch {
		batch[i] = largest
	}
	if n := len(membersMessage("KIPVS-A", batch)); n > 1<<16-1 {
		t.Errorf("a full batch takes %d bytes", n)
	}
}

func TestAnswer(t *testing.T) {
	errno := func(n int32, line uint32) []byte {
		b := binary.NativeEndian.AppendUint32(nil, uint32(n))
		b = append(b, make([]byte, unix.SizeofNlMsghdr)...)
		return append(b, appendAttr(setMessage("KIPVS-A"), nl.IPSET_ATTR_LINENO, nl.Uint32Attr(line)...)...)
	}
	message := func(a *answer, flags uint16) { a.take(7, 0x607, unix.NLM_F_MULTI|flags, []byte("part")) }
	for name, test := range map[string]struct {
		feed func(*answer)
		want error
	}{
		"acknowledged":       {func(a *answer) { a.take(7, unix.NLMSG_ERROR, 0, errno(0, 0)) }, nil},
		"list":               {func(a *answer) { message(a, 0); a.take(7, unix.NLMSG_DONE, 0, nil) }, nil},
		"interrupted":        {func(a *answer) { message(a, unix.NLM_F_DUMP_INTR); a.take(7, unix.NLMSG_DONE, 0, nil) }, errInterrupted},
		"failed at the end":  {func(a *answer) { message(a, 0); a.take(7, unix.NLMSG_DONE, 0, errno(-5, 0)) }, unix.EIO},
		"failed as a whole":  {func(a *answer) { a.take(7, unix.NLMSG_ERROR, 0, errno(-1, 0)) }, unix.EPERM},
		"failed at an entry": {func(a *answer) { a.take(7, unix.NLMSG_ERROR, 0, errno(-4352, 3)) }, codeFull},
		"an earlier answer": {func(a *answer) {
			a.take(6, unix.NLMSG_ERROR, 0, errno(-1, 0))
			a.take(7, unix.NLMSG_ERROR, 0, errno(0, 0))
		}, nil},
		"cut short": {func(a *answer) { a.take(7, unix.NLMSG_ERROR, 0, []byte{1}) }, errMalformed},
	} {
		a := &answer{seq: 7}
		test.feed(a)
		msgs, err := a.result()
		if !errors.Is(err, test.want) || test.want == nil && err != nil {
			t.Errorf("%s: got %v, want %v", name, err, test.want)
		}
		if err != nil && msgs != nil {
			t.Errorf("%s: a partial answer was passed off as the whole", name)
		}
		if r, ok := errors.AsType[*refusal](err); ok != (test.want == codeFull) || ok && r.index != 2 {
			t.Errorf("%s: got %+v", name, r)
		}
	}
}

func FuzzParse(f *testing.F) {
	f.Add(membersMessage("KIPVS-A", someMembers))
	f.Add(createMessage("KIPVS-A", spec{Type: state.HashIP, Family: state.IPv4, Marks: true, Max: 8}))
	f.Fuzz(func(_ *testing.T, b []byte) {
		_, _, _ = parseHeader(b)
		_ = parseMembers(b, func(m member) { _ = m.String() })
		_ = parseRefusal(b)
	})
}
