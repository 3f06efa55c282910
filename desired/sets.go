package desired

import "github.com/kube-ipvs/kube-ipvs/state"

// set is one of our ipsets; each exists once a family.
type set struct {
	name  string
	kind  state.SetType
	marks bool
}

// The sets. Their entries hold everything that varies; the rules that name
// them are the same whatever the Services.
var (
	setPod      = set{name: "POD", kind: state.HashNet}                      // pods' addresses, for the local detector
	setRange    = set{name: "RANGE", kind: state.HashIPPortNet}              // sources that a restricted address admits
	setRanged   = set{name: "RANGED", kind: state.HashIPPort}                // load-balancer addresses with source ranges
	setAddress  = set{name: "ADDRESS", kind: state.HashIP}                   // what is bound on our device
	setCluster  = set{name: "CLUSTER", kind: state.HashIPPort}               // cluster IPs
	setExternal = set{name: "EXTERNAL", kind: state.HashIPPort}              // external addresses with policy Cluster
	setHairpin  = set{name: "HAIRPIN", kind: state.HashIPPortIP}             // local endpoints
	setHealth   = set{name: "HEALTH", kind: state.HashIPPort}                // health-check node ports
	setDrop     = set{name: "DROP", kind: state.HashIPPort}                  // policy Local and nobody here
	setRefuse   = set{name: "REFUSE", kind: state.HashIPPort}                // no endpoint at all
	setService  = set{name: "SERVICE", kind: state.HashIPPort}               // every virtual server of ours: the ledger
	setShortcut = set{name: "SHORTCUT", kind: state.HashIPPort, marks: true} // ways past policy Local, with their marks
)

// sets lists the sets in the order in which entries are added. A restriction
// comes before what it restricts; the ledger comes before the virtual servers.
func sets() []set {
	return []set{
		setPod, setRange, setRanged, setAddress, setCluster, setExternal,
		setHairpin, setHealth, setDrop, setRefuse, setService, setShortcut,
	}
}

// in returns the set's name in a family.
func (s set) in(f state.Family) string {
	if f == state.IPv6 {
		return "KIPVS6-" + s.name
	}
	return "KIPVS-" + s.name
}

// Ledger returns the name of the set that lists the virtual servers of ours in
// a family.
func Ledger(f state.Family) string { return setService.in(f) }

func emptySets(families []state.Family) (map[string]*state.Set, []string) {
	all := map[string]*state.Set{}
	var order []string
	for _, s := range sets() {
		for _, f := range families {
			all[s.in(f)] = &state.Set{Type: s.kind, Family: f, Marks: s.marks, Entries: map[state.Entry]uint32{}}
			order = append(order, s.in(f))
		}
	}
	return all, order
}
