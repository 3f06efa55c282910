package scenario

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
)

// session is one run of one file: the world, and what its steps have opened so far.
type session struct {
	world  World
	family Family
	slow   float64

	clients map[string]*traffic.Client
	held    map[string]*traffic.Held
	loads   map[string]*traffic.Load
	streams map[string]*traffic.Stream
	slices  map[string][]string // names of the slices that steps made, by Service
	marks   map[string]*watch   // what is watched since a mark, by mark and node
}

func newSession(w World, f Family, slow float64) *session {
	return &session{
		world: w, family: f, slow: slow,
		clients: map[string]*traffic.Client{}, held: map[string]*traffic.Held{},
		loads: map[string]*traffic.Load{}, streams: map[string]*traffic.Stream{},
		slices: map[string][]string{}, marks: map[string]*watch{},
	}
}

// slowed is a time of the file on a machine that is slower than usual.
func (s *session) slowed(d time.Duration) time.Duration {
	return time.Duration(float64(d) * s.slow)
}

// host returns a host of the topology, which the world must have.
func (s *session) host(name string) (Host, error) {
	if h := s.world.Host(name); h != nil {
		return h, nil
	}
	return nil, fmt.Errorf("the lab has no host %s", name)
}

// client returns the traffic client of a host, always the same, since it counts the source ports it has used.
func (s *session) client(name string) (*traffic.Client, error) {
	if c := s.clients[name]; c != nil {
		return c, nil
	}
	h, err := s.host(name)
	if err != nil {
		return nil, err
	}
	s.clients[name] = traffic.NewClient(h)
	return s.clients[name], nil
}

// proxies returns the error of the first proxy that has ended by itself.
func (s *session) proxies() error {
	for _, h := range Hosts() {
		if !h.IsNode() {
			continue
		}
		if p := s.world.Proxy(h.Name); p != nil {
			if err := p.Ended(); err != nil {
				return err
			}
		}
	}
	return nil
}

// output runs a command that only reads in a host, and returns what it printed.
func (s *session) output(ctx context.Context, host, line string) (string, error) {
	h, err := s.host(host)
	if err != nil {
		return "", err
	}
	out, exit, err := h.Command(ctx, line)
	if err == nil && exit != 0 {
		err = fmt.Errorf("exit status %d: %s", exit, short(out))
	}
	if err != nil {
		return "", fmt.Errorf("%s on %s: %w", line, host, err)
	}
	return out, nil
}

// close ends everything that the steps have left open.
func (s *session) close() error {
	var errs []error
	for _, l := range s.loads {
		l.Stop()
	}
	for _, u := range s.streams {
		u.Stop()
	}
	for _, h := range s.held {
		errs = append(errs, h.Close())
	}
	for _, w := range s.marks {
		w.close()
	}
	return errors.Join(errs...)
}
