package ipset

import (
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

func TestOpString(t *testing.T) {
	mark := spec{Type: state.HashIPPort, Family: state.IPv6, Marks: true, Max: 8}
	for want, o := range map[string]op{
		"create KIPVS-A hash:ip,port family inet6 maxelem 8 skbinfo": {verb: verbCreate, set: "KIPVS-A", spec: mark},
		"add KIPVS-A 10.96.0.10,tcp:80":                              {verb: verbAdd, set: "KIPVS-A", member: member{entry: port(state.TCP, "10.96.0.10:80")}},
		"add KIPVS-A 203.0.113.1,tcp:80 skbmark 0x101":               {verb: verbAdd, set: "KIPVS-A", member: member{port(state.TCP, "203.0.113.1:80"), 0x101}},
		"del KIPVS-A 10.0.0.1,udp:53,10.0.0.0/8":                     {verb: verbDel, set: "KIPVS-A", member: member{entry: portNet(state.UDP, "10.0.0.1:53", "10.0.0.0/8")}},
		"swap KIPVS-A KIPVS-B":                                       {verb: verbSwap, set: "KIPVS-A", with: "KIPVS-B"},
		"destroy KIPVS-A":                                            {verb: verbDestroy, set: "KIPVS-A"},
	} {
		if got := o.String(); got != want {
			t.Errorf("got %q, want %q", got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	four := func(kind state.SetType) spec { return spec{Type: kind, Family: state.IPv4} }
	six := func(kind state.SetType) spec { return spec{Type: kind, Family: state.IPv6} }
	for _, test := range []struct {
		spec spec
		bad  state.Entry
	}{
		{four(state.HashIP), state.Entry{}},
		{four(state.HashIP), network("10.0.0.0/8")},
		{four(state.HashIP), addr("fd00::1")},
		{four(state.HashIP), portNet(state.TCP, "10.0.0.1:80", "10.0.0.1/32")},
		{four(state.HashNet), network("0.0.0.0/0")},
		{four(state.HashNet), network("10.0.0.1/8")},
		{four(state.HashIPPort), addr("10.0.0.1")},
		{four(state.HashIPPort), port(0, "10.0.0.1:80")},
		{four(state.HashIPPort), port(state.TCP, "[fd00::1]:80")},
		{four(state.HashIPPort), portNet(state.TCP, "10.0.0.1:80", "10.0.0.1/32")},
		{four(state.HashIPPortIP), port(state.TCP, "10.0.0.1:80")},
		{four(state.HashIPPortIP), portNet(state.TCP, "10.0.0.1:80", "10.0.0.0/8")},
		{four(state.HashIPPortNet), portNet(state.TCP, "10.0.0.1:80", "fd00::/8")},
		{six(state.HashIPPort), port(state.TCP, "[::ffff:10.0.0.1]:80")},
		{six(state.HashIP), addr("::ffff:10.0.0.1")},
	} {
		if err := test.spec.check(test.bad); err == nil {
			t.Errorf("%s takes %s", test.spec, test.bad)
		}
	}
}

func TestCheckNames(t *testing.T) {
	n := node(map[string]*state.Set{"KIPVS-A": {}, "KIPVS6-B": {}})
	if err := checkNames(n); err != nil {
		t.Error(err)
	}
	for _, bad := range []string{"KUBE-A", "KIPVS-2345678901234567890123456789"} {
		if err := checkNames(node(map[string]*state.Set{bad: {}})); err == nil {
			t.Errorf("%s was taken", bad)
		}
	}
	n.SetOrder = n.SetOrder[:1]
	if err := checkNames(n); err == nil {
		t.Error("a set without a place in the order was taken")
	}
}
