package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"os"
	"time"

	"github.com/kube-ipvs/kube-ipvs/config"
	"github.com/kube-ipvs/kube-ipvs/health"
	"github.com/kube-ipvs/kube-ipvs/metrics"
	"github.com/kube-ipvs/kube-ipvs/proxy"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"go.uber.org/zap"
)

// socketPath is where the running proxy answers "kube-ipvs list" and "kube-ipvs
// sync". Only root may connect.
const socketPath = "/run/kube-ipvs.sock"

// rebind is how long to wait before a server that failed is tried again.
const rebind = 5 * time.Second

// serve starts the HTTP servers. One that cannot listen is tried again, or ends
// the process where the configuration says so.
func serve(ctx context.Context, cfg config.Config, status *health.Status, m *metrics.Metrics, p *proxy.Proxy, log *zap.Logger, fail func(string, error)) {
	keep := func(name, network, address string, handler http.Handler, hard bool) {
		go func() {
			for ctx.Err() == nil {
				err := listen(ctx, network, address, handler)
				if ctx.Err() != nil {
					return
				}
				if hard {
					fail(name, err)
					return
				}
				log.Error("server failed; trying again", zap.String("server", name), zap.String("address", address), zap.Duration("in", rebind), zap.Error(err))
				select {
				case <-ctx.Done():
				case <-time.After(rebind):
				}
			}
		}()
	}
	if a := cfg.HealthzBindAddress; a.IsValid() {
		keep("healthz", "tcp", a.String(), status.Handler(m.Answered), cfg.BindAddressHardFail)
	}
	if a := cfg.MetricsBindAddress; a.IsValid() {
		keep("metrics", "tcp", a.String(), metricsHandler(cfg, m), cfg.BindAddressHardFail)
	}
	keep("local socket", "unix", socketPath, localHandler(p), false)
}

// listen serves until the context ends or the server fails.
func listen(ctx context.Context, network, address string, handler http.Handler) error {
	if network == "unix" {
		if err := removeSocket(address); err != nil {
			return err
		}
	}
	listener, err := (&net.ListenConfig{}).Listen(ctx, network, address)
	if err != nil {
		return err
	}
	if network == "unix" {
		if err := os.Chmod(address, 0o600); err != nil {
			return err
		}
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	stop := context.AfterFunc(ctx, func() { server.Close() })
	defer stop()
	return server.Serve(listener)
}

// removeSocket removes what an earlier process left, and nothing but a socket.
func removeSocket(path string) error {
	info, err := os.Lstat(path)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return nil
	case err != nil:
		return err
	case info.Mode().Type() != os.ModeSocket:
		return fmt.Errorf("%s is no socket: remove it", path)
	}
	return os.Remove(path)
}

func metricsHandler(cfg config.Config, m *metrics.Metrics) http.Handler {
	mux := http.NewServeMux()
	mux.Handle("/metrics", promhttp.HandlerFor(m.Registry, promhttp.HandlerOpts{}))
	mux.HandleFunc("/healthz", func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "ok") })
	mux.HandleFunc("/proxyMode", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		w.Header().Set("X-Content-Type-Options", "nosniff")
		fmt.Fprint(w, "ipvs")
	})
	if cfg.Profiling {
		mux.HandleFunc("/debug/pprof/", pprof.Index)
		mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
		mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
		mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
		mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	}
	return mux
}

// localHandler answers what the commands of this program ask.
func localHandler(p *proxy.Proxy) http.Handler {
	mux := http.NewServeMux()
	mux.HandleFunc("GET /names", func(w http.ResponseWriter, r *http.Request) {
		names, err := p.Names(r.Context())
		reply(w, names, err)
	})
	mux.HandleFunc("POST /sync", func(w http.ResponseWriter, r *http.Request) {
		pass, err := p.Compare(r.Context())
		reply(w, syncAnswer{Operations: pass.Operations(), Layers: pass.Done}, err)
	})
	return mux
}

// syncAnswer tells what a comparison of everything had to change.
type syncAnswer struct {
	Operations int            `json:"operations"`
	Layers     map[string]int `json:"layers"`
}

func reply(w http.ResponseWriter, body any, err error) {
	if err != nil {
		http.Error(w, err.Error(), http.StatusServiceUnavailable)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(body)
}
