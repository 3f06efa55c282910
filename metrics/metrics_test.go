package metrics

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/proxy"
	"github.com/kube-ipvs/kube-ipvs/state"
)

var at = time.Unix(1000, 0)

// series returns the values of one metric as name{label="value",…} value; of a
// histogram the number of its samples and their sum.
func (m *Metrics) series(t *testing.T, name string) []string {
	t.Helper()
	families, err := m.Registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var out []string
	for _, f := range families {
		if f.GetName() != name {
			continue
		}
		for _, s := range f.GetMetric() {
			var labels []string
			for _, l := range s.GetLabel() {
				labels = append(labels, fmt.Sprintf("%s=%q", l.GetName(), l.GetValue()))
			}
			text := "{" + strings.Join(labels, ",") + "} "
			switch {
			case s.Gauge != nil:
				text += fmt.Sprint(s.Gauge.GetValue())
			case s.Counter != nil:
				text += fmt.Sprint(s.Counter.GetValue())
			case s.Histogram != nil:
				text += fmt.Sprint(s.Histogram.GetSampleCount(), " ", s.Histogram.GetSampleSum())
			}
			out = append(out, text)
		}
	}
	slices.Sort(out)
	return out
}

func (m *Metrics) expect(t *testing.T, name string, want ...string) {
	t.Helper()
	if got := m.series(t, name); !slices.Equal(got, want) {
		t.Errorf("%s: got %q, want %q", name, got, want)
	}
}

func TestNoLocalEndpoints(t *testing.T) {
	const name = "kubeproxy_sync_proxy_rules_no_local_endpoints_total"
	m := New([]state.Family{state.IPv4, state.IPv6})
	m.Synced(proxy.Pass{At: at, NoLocal: map[desired.Policy]int{
		{Family: state.IPv4}:                 2, // S32
		{Family: state.IPv4, External: true}: 3, // S38
		{Family: state.IPv6, External: true}: 1,
	}})
	m.expect(t, name,
		`{ip_family="IPv4",traffic_policy="external"} 3`, `{ip_family="IPv4",traffic_policy="internal"} 2`,
		`{ip_family="IPv6",traffic_policy="external"} 1`, `{ip_family="IPv6",traffic_policy="internal"} 0`)

	t.Log("it is what is so now, not a sum")
	m.Synced(proxy.Pass{At: at, NoLocal: map[desired.Policy]int{{Family: state.IPv4}: 1}})
	m.expect(t, name,
		`{ip_family="IPv4",traffic_policy="external"} 0`, `{ip_family="IPv4",traffic_policy="internal"} 1`,
		`{ip_family="IPv6",traffic_policy="external"} 0`, `{ip_family="IPv6",traffic_policy="internal"} 0`)
}

func TestS94ProgrammingLatency(t *testing.T) {
	const name = "kubeproxy_network_programming_duration_seconds"
	m := New([]state.Family{state.IPv4, state.IPv6})
	m.Synced(proxy.Pass{At: at, Took: time.Second, Triggered: map[state.Family][]time.Time{
		state.IPv4: {at.Add(-2 * time.Second), at.Add(-4 * time.Second)},
	}})
	m.expect(t, name, `{ip_family="IPv4"} 2 8`)
}

func TestPasses(t *testing.T) {
	m := New([]state.Family{state.IPv4})
	m.Queued(at)
	m.Synced(proxy.Pass{At: at, Took: time.Second, Whole: true, Done: map[string]int{"servers": 3}, Services: 1, Servers: 2, Reals: 4, Draining: 1})
	m.Synced(proxy.Pass{At: at.Add(time.Minute), Done: map[string]int{"servers": 1}, Services: 5, Servers: 6, Reals: 8, Err: errors.New("broken")})
	m.Answered("/healthz", 200)
	m.Answered("/healthz", 503)
	m.Answered("/healthz", 503)
	m.Answered("/livez", 200)
	m.expect(t, "kubeproxy_sync_proxy_rules_last_queued_timestamp_seconds", `{ip_family="IPv4"} 1000`)
	m.expect(t, "kubeproxy_sync_proxy_rules_last_timestamp_seconds", `{ip_family="IPv4"} 1001`) // not the failed one
	m.expect(t, "kubeproxy_sync_proxy_rules_duration_seconds", `{ip_family="IPv4"} 1 1`)
	m.expect(t, "kubeipvs_passes_total", `{kind="change"} 1`, `{kind="whole"} 1`)
	m.expect(t, "kubeipvs_pass_failures_total", "{} 1")
	m.expect(t, "kubeipvs_operations_total", `{layer="servers"} 4`)
	m.expect(t, "kubeipvs_virtual_servers", "{} 6")
	m.expect(t, "kubeipvs_real_servers", "{} 8")
	m.expect(t, "kubeipvs_draining_real_servers", "{} 0")
	m.expect(t, "kubeipvs_services", "{} 5")
	m.expect(t, "kubeproxy_proxy_healthz_total", `{code="200"} 1`, `{code="503"} 2`)
	m.expect(t, "kubeproxy_proxy_livez_total", `{code="200"} 1`)
}
