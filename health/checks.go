package health

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Checks serves the health-check node ports, one server for each Service and
// address.
type Checks struct {
	healthy func() bool
	servers map[state.Name]*checkServer
}

// NewChecks returns Checks without ports; healthy tells about the proxy itself.
func NewChecks(healthy func() bool) *Checks {
	return &Checks{healthy: healthy, servers: map[state.Name]*checkServer{}}
}

// Sync opens, changes and closes ports so that they are as wanted. It returns
// what could not be opened, by Service; that is tried again the next time.
func (c *Checks) Sync(want map[state.Name]state.HealthCheck) map[state.Name]error {
	for name, server := range c.servers {
		if w, ok := want[name]; !ok || w.Port != server.port || !slices.Equal(w.Addresses, server.addresses) {
			server.close()
			delete(c.servers, name)
		}
	}
	failed := map[state.Name]error{}
	for name, w := range want {
		server := c.servers[name]
		if server == nil {
			server = &checkServer{name: name, port: w.Port, addresses: w.Addresses, healthy: c.healthy, http: map[listen]*http.Server{}}
			c.servers[name] = server
		}
		server.set(w.Local)
		if err := server.open(); err != nil {
			failed[name] = err
		}
	}
	return failed
}

// Close closes every port.
func (c *Checks) Close() { c.Sync(nil) }

// checkServer is the server of one Service.
type checkServer struct {
	name      state.Name
	port      uint16
	addresses []netip.Addr
	healthy   func() bool
	http      map[listen]*http.Server

	mu    sync.Mutex
	local int
}

func (s *checkServer) set(local int) {
	s.mu.Lock()
	s.local = local
	s.mu.Unlock()
}

// open listens on every address, or on all of both families where none is
// given, and keeps what it has already. A family or an address that the node
// does not have is no error.
func (s *checkServer) open() error {
	var errs []error
	for _, l := range s.where() {
		if s.http[l] != nil {
			continue
		}
		listener, err := net.Listen(l.network, l.address)
		if errors.Is(err, syscall.EAFNOSUPPORT) || errors.Is(err, syscall.EADDRNOTAVAIL) {
			continue
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("health-check node port of %s: listen on %s: %w", s.name, l.address, err))
			continue
		}
		server := &http.Server{Handler: s, ReadHeaderTimeout: 10 * time.Second}
		s.http[l] = server
		go server.Serve(listener)
	}
	return errors.Join(errs...)
}

// listen is where a server listens.
type listen struct{ network, address string }

func (s *checkServer) where() []listen {
	port := strconv.Itoa(int(s.port))
	if s.addresses == nil {
		return []listen{{"tcp4", ":" + port}, {"tcp6", ":" + port}}
	}
	var all []listen
	for _, a := range s.addresses {
		all = append(all, listen{"tcp", netip.AddrPortFrom(a, s.port).String()})
	}
	return all
}

func (s *checkServer) close() {
	for _, server := range s.http {
		server.Close()
	}
}

// checkAnswer is the body of a health check, as cloud controllers parse it.
type checkAnswer struct {
	Service struct {
		Namespace string `json:"namespace"`
		Name      string `json:"name"`
	} `json:"service"`
	LocalEndpoints      int  `json:"localEndpoints"`
	ServiceProxyHealthy bool `json:"serviceProxyHealthy"`
}

// ServeHTTP answers any path and method: 200 where the node has a ready pod and
// the proxy does its work, else 503.
func (s *checkServer) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	s.mu.Lock()
	a := checkAnswer{LocalEndpoints: s.local}
	s.mu.Unlock()
	a.Service.Namespace, a.Service.Name = s.name.Namespace, s.name.Name
	a.ServiceProxyHealthy = s.healthy()

	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	w.Header().Set("X-Load-Balancing-Endpoint-Weight", strconv.Itoa(a.LocalEndpoints))
	if a.LocalEndpoints == 0 || !a.ServiceProxyHealthy {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	body, _ := json.MarshalIndent(a, "", "\t")
	_, _ = w.Write(append(body, '\n'))
}
