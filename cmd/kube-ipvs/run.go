package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"github.com/go-logr/zapr"
	"github.com/kube-ipvs/kube-ipvs/config"
	"github.com/kube-ipvs/kube-ipvs/health"
	"github.com/kube-ipvs/kube-ipvs/metrics"
	"github.com/kube-ipvs/kube-ipvs/proxy"
	"github.com/kube-ipvs/kube-ipvs/vip"
	"github.com/kube-ipvs/kube-ipvs/watch"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"k8s.io/client-go/kubernetes"
	"k8s.io/klog/v2"
)

// start reads the configuration and does what it asks for.
func start(ctx context.Context, flags *config.Flags) error {
	cfg, warnings, err := flags.Load()
	if err != nil {
		return usageError{err}
	}
	log, err := logger(cfg)
	if err != nil {
		return usageError{err}
	}
	defer log.Sync()
	for _, w := range warnings {
		log.Warn("configuration", zap.String("field", w.Field), zap.String("text", w.Text))
	}
	ctx, stop := signal.NotifyContext(ctx, syscall.SIGTERM, syscall.SIGINT)
	defer stop()
	switch {
	case cfg.WriteConfigTo != "":
		return cfg.WriteFile(cfg.WriteConfigTo)
	case cfg.Cleanup:
		return cleanup(ctx, log)
	}
	return run(ctx, cfg, log)
}

// run sets the node up and works until the context ends. What it programmed
// stays, so that traffic goes on while it is away.
func run(ctx context.Context, cfg config.Config, log *zap.Logger) error {
	source, client, err := source(cfg, log)
	if err != nil {
		return err
	}
	if !cfg.InitOnly {
		release, err := alone()
		if err != nil {
			return err
		}
		defer release()
	}
	node, err := prepare(ctx, cfg, log)
	if ctx.Err() != nil {
		log.Info("stopped while starting")
		return nil
	}
	if err != nil {
		return err
	}
	if cfg.InitOnly {
		log.Info("the node is prepared; ending as --init-only asks")
		return nil
	}
	raiseOOMScore(cfg.OOMScoreAdj, log)

	status := health.NewStatus(node.options.Families, 2*cfg.IPVS.SyncPeriod, time.Now)
	watched := &observer{
		status:  status,
		metrics: metrics.New(node.options.Families),
		events:  newEvents(client, log),
	}
	node.layers.Checks = health.NewChecks(status.Healthy)
	p := proxy.New(proxy.Config{
		Log: log, Node: cfg.NodeName, Options: node.options, Layers: node.layers,
		Period: cfg.IPVS.SyncPeriod, Least: cfg.IPVS.MinSyncPeriod,
		Now: time.Now, Observer: watched,
	})

	// The first pass must know the node's own addresses.
	own, err := watch.Addresses(vip.DefaultDevice)
	if err != nil {
		return fmt.Errorf("addresses of the node: %w", err)
	}
	p.Sink().SetAddresses(own)

	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	fail := func(what string, err error) {
		if err != nil && ctx.Err() == nil {
			cancel(fmt.Errorf("%s: %w", what, err))
		}
	}
	go func() { fail("addresses of the node", watch.WatchAddresses(ctx, vip.DefaultDevice, p.Sink(), log)) }()
	go func() { fail("source of Services", source.Run(ctx, p.Sink())) }()
	serve(ctx, cfg, status, watched.metrics, p, log, fail)

	log.Info("started", zap.String("version", version), zap.String("node", cfg.NodeName))
	p.Run(ctx)
	if cause := context.Cause(ctx); !errors.Is(cause, context.Canceled) {
		return cause
	}
	log.Info("stopped; what was programmed stays in force")
	return nil
}

// source returns where Services come from; the client is nil with manifests.
func source(cfg config.Config, log *zap.Logger) (watch.Source, kubernetes.Interface, error) {
	if cfg.ManifestsDir != "" {
		return &watch.Manifests{Dir: cfg.ManifestsDir, Log: log}, nil, nil
	}
	c := cfg.Client
	client, err := watch.Client(c.Kubeconfig, c.Master, c.ContentType, c.AcceptContentTypes, c.QPS, c.Burst, "kube-ipvs/"+version)
	if err != nil {
		return nil, nil, err
	}
	return &watch.API{Client: client, Node: cfg.NodeName, Resync: cfg.Resync, Log: log}, client, nil
}

// logger returns the log and leads client-go's messages into it.
func logger(cfg config.Config) (*zap.Logger, error) {
	z := zap.NewProductionConfig()
	z.DisableStacktrace = true
	z.DisableCaller = true
	z.EncoderConfig.EncodeTime = zapcore.RFC3339NanoTimeEncoder
	z.EncoderConfig.EncodeDuration = zapcore.StringDurationEncoder
	if cfg.LogFormat != config.LogJSON {
		z.Encoding = "console"
	}
	if cfg.Debug() {
		z.Level.SetLevel(zap.DebugLevel)
	}
	log, err := z.Build()
	if err != nil {
		return nil, fmt.Errorf("log: %w", err)
	}
	klog.SetLogger(zapr.NewLogger(log.Named("client-go")))
	return log, nil
}

// raiseOOMScore keeps the kernel from choosing this process first when memory
// is short.
func raiseOOMScore(score int, log *zap.Logger) {
	if err := os.WriteFile("/proc/self/oom_score_adj", []byte(fmt.Sprint(score)), 0); err != nil {
		log.Warn("cannot set oom_score_adj", zap.Int("score", score), zap.Error(err))
	}
}

// observer tells everybody who wants to know what the loop does.
type observer struct {
	failing bool // in the last whole pass, or one since, a layer failed as a whole
	status  *health.Status
	metrics *metrics.Metrics
	events  *events
}

func (o *observer) Queued(at time.Time) {
	o.status.Queued(at)
	o.metrics.Queued(at)
}

func (o *observer) Began(at time.Time) { o.status.Began(at) }

func (o *observer) Synced(p proxy.Pass) {
	o.status.Ended()
	end := p.At.Add(p.Took)
	// A key that fails for its own reasons, such as an odd object, says nothing
	// about the proxy.
	o.failing = p.Broken || (o.failing && !p.Whole)
	if o.failing {
		o.status.Failed(end)
	} else {
		o.status.Succeeded(end)
	}
	o.metrics.Synced(p)
}

func (o *observer) Eligible(yes bool) { o.status.SetEligible(yes) }

var _ proxy.Observer = (*observer)(nil)
