package desired

import (
	"fmt"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Problem is something about a Service that its owner should know; it becomes
// one Warning Event. Everything else of the Service goes on.
type Problem struct {
	Service state.Name
	UID     string
	// Reason is a CamelCase word, as Events have it.
	Reason  string
	Message string
}

// The reasons of problems.
const (
	ReasonInvalid = "InvalidService"
	ReasonClaimed = "AddressClaimedByOther"
	// ReasonHealthCheck is kube-proxy's.
	ReasonHealthCheck = "FailedToStartServiceHealthcheck"
	ReasonForeign     = "VirtualServerOfAnotherProgram"
	ReasonNodeAddr    = "AddressOfNode"
	ReasonScheduler   = "InvalidScheduler"
)

func problem(s *state.Service, reason, format string, args ...any) Problem {
	return Problem{Service: s.Name, UID: s.UID, Reason: reason, Message: fmt.Sprintf(format, args...)}
}
