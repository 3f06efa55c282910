// Package health answers the questions that load balancers and the kubelet
// ask over HTTP: is this proxy doing its work, and does a Service have a pod
// on this node? It only repeats what it is told.
package health

import (
	"encoding/json"
	"net/http"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Status is what the proxy last reported of itself. It is safe for use by
// several goroutines.
type Status struct {
	families []state.Family
	timeout  time.Duration
	now      func() time.Time

	mu       sync.Mutex
	synced   bool      // everything was in force once
	success  time.Time // the last time that everything was in force
	waiting  time.Time // since when something has waited to be programmed; zero for nothing
	began    time.Time // when the pass that runs began; zero between passes
	eligible bool
}

// longestPass is how long a pass may last before the proxy counts as stuck.
const longestPass = time.Minute

// NewStatus returns a Status that is unhealthy until the first success. A proxy
// that has had something to program for longer than the timeout is unhealthy.
func NewStatus(families []state.Family, timeout time.Duration, now func() time.Time) *Status {
	return &Status{families: families, timeout: timeout, now: now}
}

// Began notes that a pass begins, Ended that it is over: one that never ends is
// unhealthy too.
func (s *Status) Began(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.began = at
}

// Ended notes the end of a pass.
func (s *Status) Ended() { s.Began(time.Time{}) }

// Queued notes that something waits to be programmed since the given time.
func (s *Status) Queued(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.waiting.IsZero() {
		s.waiting = at
	}
}

// Succeeded notes that everything wanted is in force.
func (s *Status) Succeeded(at time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.synced, s.success, s.waiting = true, at, time.Time{}
}

// Failed notes that something could not be programmed.
func (s *Status) Failed(at time.Time) { s.Queued(at) }

// SetEligible notes whether load balancers may send to this node (KEP-3836).
func (s *Status) SetEligible(yes bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.eligible = yes
}

// Healthy tells whether the proxy does its work.
func (s *Status) Healthy() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.healthy()
}

func (s *Status) healthy() bool {
	now := s.now()
	stuck := !s.began.IsZero() && now.Sub(s.began) > longestPass
	return s.synced && !stuck && (s.waiting.IsZero() || now.Sub(s.waiting) < s.timeout)
}

// answer is the body of /healthz and /livez, as kube-proxy writes it.
type answer struct {
	LastUpdated  time.Time               `json:"lastUpdated"`
	CurrentTime  time.Time               `json:"currentTime"`
	NodeEligible *bool                   `json:"nodeEligible,omitempty"`
	Healthy      bool                    `json:"healthy"`
	Status       map[string]familyAnswer `json:"status"`
}

type familyAnswer struct {
	LastUpdated time.Time `json:"lastUpdated"`
	Healthy     bool      `json:"healthy"`
}

// Handler serves /healthz, which also asks whether the node is on its way out,
// and /livez, which does not. counted is called with the path and the code of
// each answer.
func (s *Status) Handler(counted func(path string, code int)) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) {
		counted("/healthz", s.answer(w, true))
	})
	mux.HandleFunc("/livez", func(w http.ResponseWriter, _ *http.Request) {
		counted("/livez", s.answer(w, false))
	})
	return mux
}

func (s *Status) answer(w http.ResponseWriter, withNode bool) int {
	a := s.report(withNode)
	code := http.StatusOK
	if !a.Healthy || (withNode && !*a.NodeEligible) {
		code = http.StatusServiceUnavailable
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(code)
	// An error here means that the client is gone.
	_ = json.NewEncoder(w).Encode(a)
	return code
}

func (s *Status) report(withNode bool) answer {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := s.now()
	a := answer{LastUpdated: s.success, CurrentTime: now, Healthy: s.healthy(), Status: map[string]familyAnswer{}}
	if a.Healthy {
		a.LastUpdated = now
	}
	if withNode {
		eligible := s.eligible
		a.NodeEligible = &eligible
	}
	for _, f := range s.families {
		a.Status[f.String()] = familyAnswer{LastUpdated: a.LastUpdated, Healthy: a.Healthy}
	}
	return a
}
