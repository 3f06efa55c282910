package conntrack

import (
	"testing"

	"github.com/vishvananda/netlink/nl"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// message returns an entry as the kernel sends it.
func message(f Flow) []byte {
	reply := nested(nl.CTA_TUPLE_REPLY)
	reply.AddChild(addresses(f.ReplySource.Addr(), f.Source.Addr()))
	ports := reply.AddRtAttr(nl.CTA_TUPLE_PROTO|int(nl.NLA_F_NESTED), nil)
	ports.AddRtAttr(nl.CTA_PROTO_NUM, []byte{byte(f.Protocol)})
	ports.AddRtAttr(nl.CTA_PROTO_SRC_PORT, nl.BEUint16Attr(f.ReplySource.Port()))
	ports.AddRtAttr(nl.CTA_PROTO_DST_PORT, nl.BEUint16Attr(f.Source.Port()))
	b := make([]byte, nl.SizeofNfgenmsg)
	for _, data := range append(identify(f), reply) {
		b = append(b, data.Serialize()...)
	}
	return b
}

func messages() []Flow {
	plain, zoned, own := udp("10.0.0.9:4000", dns, one), udp("[fd00::9]:4000", dns6, six), tcp("10.0.0.9:4001", dns, two)
	plain.ID = 0xdeadbeef
	zoned.Zone, zoned.ID = 300, 1
	own.Zone, own.ZoneOfTuple = 8, true
	return []Flow{plain, zoned, own}
}

func TestDecode(t *testing.T) {
	for _, want := range messages() {
		if got, ok := decode(message(want)); !ok || got != want {
			t.Errorf("got %+v (%v), want %+v", got, ok, want)
		}
	}
	if _, ok := decode(make([]byte, nl.SizeofNfgenmsg)); ok {
		t.Error("a message without addresses was taken for a flow")
	}
}

// FuzzDecode checks that no message makes decode fail or invent an address.
func FuzzDecode(f *testing.F) {
	for _, flow := range messages() {
		b := message(flow)
		f.Add(b)
		f.Add(b[:len(b)-3])
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		flow, ok := decode(b)
		if ok && (!flow.Source.IsValid() || !flow.Destination.IsValid() || !flow.ReplySource.IsValid()) {
			t.Errorf("%+v", flow)
		}
		if ok && flow.Destination.Addr().Is4() != flow.Source.Addr().Is4() {
			return // a mixture identifies nothing
		}
		if again, same := decode(message(flow)); ok && flow.Protocol == state.UDP && same && again.Destination != flow.Destination {
			t.Errorf("%+v became %+v", flow, again)
		}
	})
}
