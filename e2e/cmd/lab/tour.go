package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
)

// tour shows things one after another. It ends with an error as soon as one is
// not as it says.
type tour struct {
	world  scenario.World
	binary string
	out    io.Writer
	colour bool
}

// patience is how long the tour waits for something to come about.
const patience = 30 * time.Second

// demoServices are the three Services of the tour, each with its endpoints.
const demoServices = `
apiVersion: v1
kind: Service
metadata: {name: shop}
spec:
  clusterIP: 10.96.0.101
  ports: [{name: http, port: 80}]
---
apiVersion: v1
kind: Service
metadata: {name: web}
spec:
  type: NodePort
  clusterIP: 10.96.0.102
  ports: [{name: http, port: 80, nodePort: 30080}]
---
apiVersion: v1
kind: Service
metadata: {name: front}
spec:
  type: LoadBalancer
  clusterIP: 10.96.0.103
  ports: [{name: http, port: 80, nodePort: 30081}]
status: {loadBalancer: {ingress: [{ip: 203.0.113.1}]}}
`

// demoPods are the addresses and nodes of the topology's pods.
var demoPods = map[string][2]string{
	"a1": {"10.244.1.11", "node1"}, "a2": {"10.244.1.12", "node1"},
	"b1": {"10.244.2.11", "node2"}, "b2": {"10.244.2.12", "node2"},
}

// standard is the tour that make demo shows.
func (t *tour) standard(ctx context.Context) error {
	for _, step := range []func(context.Context) error{
		t.applyServices, t.showTable, t.askTenTimes, t.replaceUnderTraffic, t.refuse, t.showTable,
	} {
		if err := step(ctx); err != nil {
			return err
		}
	}
	t.head("That was it")
	t.say("Try your own Services: put manifests of Services and EndpointSlices into a folder and run")
	t.say("  make demo MANIFESTS=folder")
	return nil
}

func (t *tour) applyServices(ctx context.Context) error {
	t.head("A cluster of two nodes (kube-ipvs on each), four pods and a real API server. Three Services come in")
	for _, line := range strings.Split(strings.TrimSpace(demoServices), "\n") {
		t.say("  " + line)
	}
	if err := t.apply(ctx, []byte(demoServices)); err != nil {
		return err
	}
	for service, pods := range map[string][]string{"shop": {"a2", "b1", "b2"}, "web": {"a1", "b1"}, "front": {"b1", "b2"}} {
		if err := t.slice(ctx, service, pods...); err != nil {
			return err
		}
	}
	for _, to := range []struct{ from, to string }{
		{"a1", "10.96.0.101:80"}, {"client", "192.0.2.11:30080"}, {"client", "203.0.113.1:80"},
	} {
		if err := t.await(ctx, to.from, to.to, traffic.OK); err != nil {
			return err
		}
	}
	return nil
}

func (t *tour) showTable(ctx context.Context) error {
	t.head("The kernel's table on node1, as kube-ipvs list prints it")
	output, exit, err := t.world.Host("node1").Command(ctx, t.binary+" list")
	if err != nil {
		return err
	}
	if exit != 0 {
		return fmt.Errorf("kube-ipvs list: exit status %d: %s", exit, output)
	}
	t.say(strings.TrimRight(output, "\n"))
	return nil
}

func (t *tour) askTenTimes(ctx context.Context) error {
	t.head("Ten requests from pod a1 to the cluster IP of shop: the pods answer in turn, and see the caller's own address")
	client := traffic.NewClient(t.world.Host("a1"))
	for i := range 10 {
		attempt, err := client.Call(target("10.96.0.101:80"))
		if err != nil {
			return err
		}
		if attempt.Result != traffic.OK {
			return fmt.Errorf("request %d to shop: %s", i+1, attempt.Result)
		}
		t.say(fmt.Sprintf("  %2d  answered by %s, which saw %s", i+1, attempt.Answer.Host, attempt.Answer.Client.Addr()))
	}
	return ctx.Err()
}

func (t *tour) replaceUnderTraffic(ctx context.Context) error {
	t.head("A pod of front is replaced while an outside client sends 20 requests a second to 203.0.113.1")
	load := traffic.NewClient(t.world.Host("client")).StartLoad(traffic.LoadOptions{To: target("203.0.113.1:80"), Rate: 20})
	defer load.Stop()
	if err := t.until(ctx, "requests", func() bool { return load.Seen().Answers() >= 40 }); err != nil {
		return err
	}
	if err := t.slice(ctx, "front", "a2", "b2"); err != nil {
		return err
	}
	t.say("  b1 out, a2 in")
	if err := t.until(ctx, "answers of a2", func() bool { return load.Seen().Answered["a2"] >= 40 }); err != nil {
		return err
	}
	seen := load.Stop()
	t.say(fmt.Sprintf("  %d requests, %d failed; answered by %s", seen.Answers()+seen.Errors(), seen.Errors(), tally(seen.Answered)))
	if seen.Errors() > 0 {
		return fmt.Errorf("requests failed while a pod was replaced: %v", seen.Failed)
	}
	return nil
}

func (t *tour) refuse(ctx context.Context) error {
	t.head("Every pod of web goes away: its addresses refuse at once, so that clients can turn elsewhere")
	if err := t.slice(ctx, "web"); err != nil {
		return err
	}
	for _, call := range []struct{ from, to string }{{"a1", "10.96.0.102:80"}, {"node1", "10.96.0.102:80"}, {"client", "192.0.2.11:30080"}} {
		if err := t.await(ctx, call.from, call.to, traffic.Refused); err != nil {
			return err
		}
		attempt, err := traffic.NewClient(t.world.Host(call.from)).Call(target(call.to))
		if err != nil {
			return err
		}
		t.say(fmt.Sprintf("  %-6s to %-17s %s after %s", call.from, call.to, attempt.Result, attempt.Connect.Round(100*time.Microsecond)))
	}
	return nil
}

// own shows what becomes of the user's manifests.
func (t *tour) own(ctx context.Context, files []string) error {
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			return err
		}
		if err := t.apply(ctx, text); err != nil {
			return err
		}
	}
	t.head("Your objects are in the API server. Pods of the cluster: " + podList())
	if err := t.settled(ctx); err != nil {
		return err
	}
	return t.showTable(ctx)
}

// settled waits until the table has not changed for a while.
func (t *tour) settled(ctx context.Context) error {
	last, since := "", time.Now()
	return t.until(ctx, "table at rest", func() bool {
		output, _, err := t.world.Host("node1").Command(ctx, "ipvsadm -Sn")
		if err != nil || output != last {
			last, since = output, time.Now()
		}
		return time.Since(since) > 3*time.Second
	})
}

func (t *tour) apply(ctx context.Context, text []byte) error {
	all, err := documents(text)
	if err != nil {
		return err
	}
	for _, object := range all {
		if err := t.world.Apply(ctx, object); err != nil {
			return err
		}
	}
	return nil
}

// slice says which pods a Service has, all ready.
func (t *tour) slice(ctx context.Context, service string, pods ...string) error {
	endpoints := []any{}
	for _, pod := range pods {
		endpoints = append(endpoints, map[string]any{
			"addresses": []any{demoPods[pod][0]}, "nodeName": demoPods[pod][1],
			"conditions": map[string]any{"ready": true},
			"targetRef":  map[string]any{"kind": "Pod", "namespace": "default", "name": pod},
		})
	}
	return t.world.Apply(ctx, map[string]any{
		"apiVersion": "discovery.k8s.io/v1", "kind": "EndpointSlice", "addressType": "IPv4",
		"metadata":  map[string]any{"name": service + "-1", "labels": map[string]any{"kubernetes.io/service-name": service}},
		"ports":     []any{map[string]any{"name": "http", "port": 8080, "protocol": "TCP"}},
		"endpoints": endpoints,
	})
}

// await calls until the result is the wanted one.
func (t *tour) await(ctx context.Context, from, to string, want traffic.Result) error {
	client := traffic.NewClient(t.world.Host(from))
	var last traffic.Attempt
	err := t.until(ctx, fmt.Sprintf("%s to %s: %s", from, to, want), func() bool {
		var err error
		last, err = client.Call(target(to))
		return err == nil && last.Result == want
	})
	if err != nil {
		return fmt.Errorf("%w (last seen: %s)", err, last.Result)
	}
	return nil
}

func (t *tour) until(ctx context.Context, what string, done func() bool) error {
	deadline := time.Now().Add(patience)
	for !done() {
		if time.Now().After(deadline) {
			return fmt.Errorf("not within %s: %s", patience, what)
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-time.After(50 * time.Millisecond):
		}
	}
	return nil
}

// head announces a part of the tour.
func (t *tour) head(text string) {
	if t.colour {
		text = "\x1b[1;36m" + text + "\x1b[0m"
	}
	fmt.Fprintf(t.out, "\n== %s\n\n", text)
}

func (t *tour) say(text string) { fmt.Fprintln(t.out, text) }

func target(addr string) traffic.Target {
	return traffic.Target{Proto: traffic.TCP, Addr: netip.MustParseAddrPort(addr)}
}

func tally(answered map[string]int) string {
	var parts []string
	for host, n := range answered {
		parts = append(parts, fmt.Sprintf("%s %d times", host, n))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}

func podList() string {
	var parts []string
	for pod, at := range demoPods {
		parts = append(parts, fmt.Sprintf("%s %s on %s", pod, at[0], at[1]))
	}
	slices.Sort(parts)
	return strings.Join(parts, ", ")
}
