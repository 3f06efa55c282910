package desired

import (
	"fmt"
	"hash/fnv"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Packet marks of ours lie in one block, so that a rule can tell them from
// anybody else's. IPVS compares the whole mark.
const (
	markBlock = 0x4b000000
	markMask  = 0xff000000
)

// portKey names a Service port by what the kernel sees of it, so that renaming
// a port changes nothing.
type portKey struct {
	service  state.Name
	protocol state.Protocol
	number   uint16
}

// marks hands out a packet mark to each Service port that asks. A mark is the
// hash of the port's key, so that a new process finds the same one, with the
// next free number where two hashes meet.
type marks struct {
	bit   uint32 // never set, since it asks for source NAT
	given map[portKey]uint32
	taken map[uint32]portKey
	by    map[state.Name][]portKey
}

func newMarks(masqueradeBit uint) *marks {
	return &marks{bit: 1 << masqueradeBit, given: map[portKey]uint32{}, taken: map[uint32]portKey{}, by: map[state.Name][]portKey{}}
}

func (m *marks) of(k portKey) uint32 {
	if mark, ok := m.given[k]; ok {
		return mark
	}
	h := fnv.New32a()
	fmt.Fprintf(h, "%s/%d/%d", k.service, k.protocol, k.number)
	for n := h.Sum32(); ; n++ {
		mark := markBlock | n&^uint32(markMask)&^m.bit
		if _, used := m.taken[mark]; !used {
			m.given[k], m.taken[mark] = mark, k
			m.by[k.service] = append(m.by[k.service], k)
			return mark
		}
	}
}

// forget gives back the marks of a Service that is gone.
func (m *marks) forget(service state.Name) {
	for _, k := range m.by[service] {
		delete(m.taken, m.given[k])
		delete(m.given, k)
	}
	delete(m.by, service)
}

// OurMark tells whether a packet mark is one of those that we hand out.
func OurMark(mark uint32) bool { return mark&markMask == markBlock }
