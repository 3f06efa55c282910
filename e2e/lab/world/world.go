// Package world is the standard topology of the scenarios, inside the lab's guest: hosts that are network namespaces,
// their echo servers, the Node objects, and a proxy on each node. It decides nothing about what must be seen.
package world

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
)

// Lab makes worlds, one after another.
type Lab struct {
	api        *api
	apiAddress string
	binary     binary
	dir        string
	kubeconfig string
	keep       string // the folder that holds binaries and configurations
	slow       float64
}

// Open waits for the API server. Slow multiplies the time that proxies have to become ready.
func Open(ctx context.Context, g *lab.Guest, slow float64) (*Lab, error) {
	l := &Lab{
		api: newAPI(g.API, g.AdminToken), apiAddress: g.API, binary: binary{g.Proxy, g.ProxyName},
		dir: filepath.Join(g.Dir, "worlds"), keep: g.Dir, slow: slow,
	}
	if err := os.MkdirAll(l.dir, 0o755); err != nil {
		return nil, err
	}
	l.kubeconfig = filepath.Join(l.dir, "kubeconfig")
	if err := writeJSON(l.kubeconfig, kubeconfig(g.ProxyToken)); err != nil {
		return nil, err
	}
	if err := l.api.awaitReady(ctx); err != nil {
		return nil, fmt.Errorf("waiting for the API server: %w", err)
	}
	return l, nil
}

// Close ends nothing that the guest's end does not end.
func (l *Lab) Close() error { return nil }

// world is one small cluster.
type world struct {
	lab        *Lab
	dir        string
	spaces     map[string]*netns.Space
	proxies    map[string]*proxy
	forwarders []*forwarder
	servers    []*traffic.Server

	mu      sync.Mutex
	applied map[key]bool
	closed  bool
}

// NewWorld implements scenario.Lab.
func (l *Lab) NewWorld(ctx context.Context, o scenario.Options) (scenario.World, error) {
	w := &world{lab: l, proxies: map[string]*proxy{}, applied: map[key]bool{}}
	if err := w.build(ctx, o); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	err := w.startProxies(ctx)
	var fault *scenario.ProxyError
	if err != nil && !errors.As(err, &fault) {
		return nil, errors.Join(err, w.Close())
	}
	return w, err
}

func (w *world) build(ctx context.Context, o scenario.Options) error {
	dir, err := os.MkdirTemp(w.lab.dir, o.Name+"-"+string(o.Family)+"-")
	if err != nil {
		return err
	}
	w.dir = dir
	nodes := make(chan error, 1)
	go func() { nodes <- w.lab.api.createNodes(ctx) }()
	w.spaces, err = buildTopology(w.lab.keep)
	if err := errors.Join(err, <-nodes); err != nil {
		return err
	}
	for _, h := range scenario.Hosts() {
		if err := w.open(ctx, h, o.ProxyConfig); err != nil {
			return err
		}
	}
	return nil
}

// open starts what runs on a host before any proxy.
func (w *world) open(ctx context.Context, h scenario.HostSpec, over map[string]any) error {
	space := w.spaces[h.Name]
	if len(h.Ports) > 0 {
		server, err := traffic.Serve(context.WithoutCancel(ctx), h.Name, space, h.Ports...)
		if err != nil {
			return fmt.Errorf("echo server of %s: %w", h.Name, err)
		}
		w.servers = append(w.servers, server)
	}
	if !h.IsNode() {
		return nil
	}
	f, err := forward(space, apiOnNode, w.lab.apiAddress)
	if err != nil {
		return fmt.Errorf("way of %s to the API server: %w", h.Name, err)
	}
	w.forwarders = append(w.forwarders, f)
	w.proxies[h.Name] = &proxy{
		binary: w.lab.binary, node: h.Name, space: space, dir: w.dir,
		config: merge(baseConfig(h.Name, w.lab.kubeconfig), over),
	}
	return nil
}

// startProxies starts all proxies at once and waits for each to be ready.
func (w *world) startProxies(ctx context.Context) error {
	for _, p := range w.proxies {
		if err := p.Start(ctx, scenario.ProxyOptions{}); err != nil {
			return err
		}
	}
	limit := time.Duration(float64(readyLimit) * w.lab.slow)
	for _, p := range w.proxies {
		if err := p.awaitReady(ctx, limit); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) Host(name string) scenario.Host {
	if _, ok := scenario.FindHost(name); !ok {
		return nil
	}
	return host{w.spaces[name]}
}

func (w *world) Proxy(node string) scenario.Proxy {
	if p, ok := w.proxies[node]; ok {
		return p
	}
	return nil
}

func (w *world) Apply(ctx context.Context, o map[string]any) error {
	k, err := w.lab.api.apply(ctx, o)
	if k.name != "" {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.applied[k] = true
	}
	return err
}

func (w *world) Delete(ctx context.Context, ref scenario.Ref) error {
	k, err := w.key(ctx, ref)
	if err != nil {
		return err
	}
	return w.lab.api.delete(ctx, k)
}

func (w *world) Events(ctx context.Context, ref scenario.Ref) ([]string, error) {
	k, err := w.key(ctx, ref)
	if err != nil {
		return nil, err
	}
	return w.lab.api.events(ctx, k)
}

func (w *world) key(ctx context.Context, ref scenario.Ref) (key, error) {
	r, err := w.lab.api.byName(ctx, ref.Kind)
	if err != nil {
		return key{}, err
	}
	return key{resource: r, namespace: namespaceOf(r, ref.Namespace), name: ref.Name}, nil
}

// Close takes everything down, in the order in which it depends on each other. It may be called twice.
func (w *world) Close() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.closed {
		return nil
	}
	w.closed = true
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	errs := []error{killAll(ctx, w.spaces)}
	for _, s := range w.servers {
		errs = append(errs, s.Close())
	}
	for _, f := range w.forwarders {
		errs = append(errs, f.Close())
	}
	closeSpaces(w.spaces)
	errs = append(errs, w.lab.api.reset(ctx, w.applied))
	if strings.HasPrefix(w.dir, w.lab.dir) {
		errs = append(errs, os.RemoveAll(w.dir))
	}
	return errors.Join(errs...)
}
