// Package metrics counts what the proxy does, under kube-proxy's names where it
// has one for the same thing and under kubeipvs_ elsewhere. It decides nothing.
package metrics

import (
	"strconv"
	"time"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/proxy"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
)

// Metrics are the proxy's own metrics, in a registry of their own.
type Metrics struct {
	Registry *prometheus.Registry
	families []state.Family

	duration    *prometheus.HistogramVec
	queued      *prometheus.GaugeVec
	last        *prometheus.GaugeVec
	programming *prometheus.HistogramVec
	noLocal     *prometheus.GaugeVec
	health      map[string]*prometheus.CounterVec

	passes     *prometheus.CounterVec
	operations *prometheus.CounterVec
	failures   prometheus.Counter
	errors     *prometheus.CounterVec
	servers    prometheus.Gauge
	reals      prometheus.Gauge
	draining   prometheus.Gauge
	services   prometheus.Gauge
}

// New returns the metrics of a proxy that serves the given families.
func New(families []state.Family) *Metrics {
	family := []string{"ip_family"}
	m := &Metrics{
		Registry: prometheus.NewRegistry(),
		families: families,
		duration: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubeproxy_sync_proxy_rules_duration_seconds", Help: "Time that a pass over the node's state took.",
			Buckets: prometheus.ExponentialBuckets(0.001, 2, 15),
		}, family),
		queued: gauge("kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", "When a change was last queued.", family),
		last:   gauge("kubeproxy_sync_proxy_rules_last_timestamp_seconds", "When everything wanted was last in force.", family),
		programming: prometheus.NewHistogramVec(prometheus.HistogramOpts{
			Name: "kubeproxy_network_programming_duration_seconds", Help: "Time from the change of an endpoint to its being in force.",
			Buckets: programmingBuckets(),
		}, family),
		noLocal: gauge("kubeproxy_sync_proxy_rules_no_local_endpoints_total",
			"Services whose traffic policy is Local and that have endpoints on other nodes only.", []string{"traffic_policy", "ip_family"}),
		health: map[string]*prometheus.CounterVec{
			"/healthz": counter("kubeproxy_proxy_healthz_total", "Answers of /healthz by status code.", []string{"code"}),
			"/livez":   counter("kubeproxy_proxy_livez_total", "Answers of /livez by status code.", []string{"code"}),
		},
		passes:     counter("kubeipvs_passes_total", "Passes over the node's state; a whole one compares everything.", []string{"kind"}),
		operations: counter("kubeipvs_operations_total", "Operations on kernel state by layer.", []string{"layer"}),
		failures:   prometheus.NewCounter(prometheus.CounterOpts{Name: "kubeipvs_pass_failures_total", Help: "Passes after which something wanted was not in force."}),
		errors:     counter("kubeipvs_errors_total", "Passes in which a layer met errors.", []string{"layer"}),
		servers:    single("kubeipvs_virtual_servers", "Virtual servers of ours in the kernel."),
		reals:      single("kubeipvs_real_servers", "Real servers of ours in the kernel."),
		draining:   single("kubeipvs_draining_real_servers", "Real servers that finish their connections and get no new ones."),
		services:   single("kubeipvs_services", "Services that the sources know."),
	}
	m.Registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		m.duration, m.queued, m.last, m.programming, m.noLocal, m.health["/healthz"], m.health["/livez"],
		m.passes, m.operations, m.failures, m.errors, m.servers, m.reals, m.draining, m.services)
	return m
}

func gauge(name, help string, labels []string) *prometheus.GaugeVec {
	return prometheus.NewGaugeVec(prometheus.GaugeOpts{Name: name, Help: help}, labels)
}

func counter(name, help string, labels []string) *prometheus.CounterVec {
	return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
}

func single(name, help string) prometheus.Gauge {
	return prometheus.NewGauge(prometheus.GaugeOpts{Name: name, Help: help})
}

// programmingBuckets are kube-proxy's: a quarter, a half, every second of the
// first minute, every five of the second and every thirty up to five.
func programmingBuckets() []float64 {
	b := append([]float64{0.25, 0.5}, prometheus.LinearBuckets(1, 1, 59)...)
	b = append(b, prometheus.LinearBuckets(60, 5, 12)...)
	return append(b, prometheus.LinearBuckets(120, 30, 7)...)
}

// Queued notes that something waits to be programmed.
func (m *Metrics) Queued(at time.Time) {
	for _, f := range m.families {
		m.queued.WithLabelValues(f.String()).Set(seconds(at))
	}
}

// Answered counts an answer of a health endpoint.
func (m *Metrics) Answered(path string, code int) {
	m.health[path].WithLabelValues(strconv.Itoa(code)).Inc()
}

// Synced notes a pass.
func (m *Metrics) Synced(p proxy.Pass) {
	kind := "change"
	if p.Whole {
		kind = "whole"
	}
	m.passes.WithLabelValues(kind).Inc()
	for layer, n := range p.Done {
		m.operations.WithLabelValues(layer).Add(float64(n))
	}
	for _, layer := range p.Failed {
		m.errors.WithLabelValues(layer).Inc()
	}
	m.servers.Set(float64(p.Servers))
	m.reals.Set(float64(p.Reals))
	m.draining.Set(float64(p.Draining))
	m.services.Set(float64(p.Services))
	if p.Err != nil {
		m.failures.Inc()
		return
	}
	end := p.At.Add(p.Took)
	for _, f := range m.families {
		name := f.String()
		m.duration.WithLabelValues(name).Observe(p.Took.Seconds())
		m.last.WithLabelValues(name).Set(seconds(end))
		for _, t := range p.Triggered[f] {
			m.programming.WithLabelValues(name).Observe(end.Sub(t).Seconds())
		}
		m.noLocal.WithLabelValues("internal", name).Set(float64(p.NoLocal[desired.Policy{Family: f}]))
		m.noLocal.WithLabelValues("external", name).Set(float64(p.NoLocal[desired.Policy{Family: f, External: true}]))
	}
}

func seconds(t time.Time) float64 { return float64(t.UnixNano()) / float64(time.Second) }
