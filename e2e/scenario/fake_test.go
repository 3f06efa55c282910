package scenario

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/e2e/traffic"
	"github.com/kube-ipvs/kube-ipvs/e2e/traffic/traffictest"
)

// fakeWorld is a cluster in memory: it keeps objects by their references, refuses to delete what it has not, and
// keeps a diary of all that was done to it. All of its hosts share one network.
type fakeWorld struct {
	network traffic.Namespace
	command func(host, line string) (output string, exit int, err error)
	reasons []string
	ended   error // of the proxy of node1
	refuse  error // of Apply

	objects []string
	diary   []string
	closed  bool
}

func (w *fakeWorld) note(format string, args ...any) {
	w.diary = append(w.diary, fmt.Sprintf(format, args...))
}

func (w *fakeWorld) Host(name string) Host   { return fakeHost{w, name} }
func (w *fakeWorld) Proxy(node string) Proxy { return fakeProxy{w, node} }

func (w *fakeWorld) Apply(_ context.Context, object map[string]any) error {
	if w.refuse != nil {
		return w.refuse
	}
	name := strings.ToLower(object["kind"].(string)) + "/" + object["metadata"].(map[string]any)["name"].(string)
	w.note("apply %s", name)
	if !slices.Contains(w.objects, name) {
		w.objects = append(w.objects, name)
	}
	return nil
}

func (w *fakeWorld) Delete(_ context.Context, ref Ref) error {
	if !slices.Contains(w.objects, ref.String()) {
		return errors.New("not found")
	}
	w.note("delete %s", ref)
	w.objects = slices.DeleteFunc(w.objects, func(name string) bool { return name == ref.String() })
	return nil
}

func (w *fakeWorld) Events(context.Context, Ref) ([]string, error) { return w.reasons, nil }

func (w *fakeWorld) Collect(_ context.Context, dir string) error {
	w.note("collect")
	return os.MkdirAll(dir, 0o755)
}

func (w *fakeWorld) Close() error {
	w.closed = true
	return nil
}

type fakeHost struct {
	world *fakeWorld
	name  string
}

func (h fakeHost) Name() string { return h.name }

func (h fakeHost) Do(fn func() error) error {
	if h.world.network == nil {
		return fn()
	}
	return h.world.network.Do(fn)
}

func (h fakeHost) Command(_ context.Context, line string) (string, int, error) {
	return h.world.command(h.name, line)
}

type fakeProxy struct {
	world *fakeWorld
	node  string
}

func (p fakeProxy) Start(_ context.Context, o ProxyOptions) error {
	p.world.note("start %s %v %v", p.node, o.Config, o.Args)
	return nil
}

func (p fakeProxy) Stop(context.Context) error {
	p.world.note("stop %s", p.node)
	return nil
}

func (p fakeProxy) Kill(context.Context) error {
	p.world.note("kill %s", p.node)
	return nil
}

func (p fakeProxy) Run(_ context.Context, o ProxyOptions) (string, int, error) {
	p.world.note("run %s %v", p.node, o.Args)
	return "cleaned", len(o.Args) - 1, nil
}

func (p fakeProxy) Ended() error {
	if p.node == "node1" {
		return p.world.ended
	}
	return nil
}

// fakeLab makes one world again and again.
type fakeLab struct {
	world World
	err   error
	asked []Options
}

func (l *fakeLab) NewWorld(_ context.Context, o Options) (World, error) {
	l.asked = append(l.asked, o)
	return l.world, l.err
}

func (l *fakeLab) Close() error { return nil }

// networked is a world with a network in which a1 answers on port 7001 and b1 on port 7002, of every protocol.
func networked(t *testing.T) *fakeWorld {
	t.Helper()
	network := traffictest.New(t)
	for name, port := range map[string]uint16{"a1": 7001, "b1": 7002} {
		server, err := traffic.Serve(t.Context(), name, network, port, port+1000)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = server.Close() })
	}
	return &fakeWorld{network: network, command: func(string, string) (string, int, error) { return "", 0, nil }}
}

// ran runs the steps of a file in a world.
func ran(t *testing.T, w *fakeWorld, text string) error {
	t.Helper()
	f, err := Parse("x.yaml", []byte(text))
	if err != nil {
		t.Fatal(err)
	}
	s := newSession(w, IPv4, 1)
	return errors.Join((&Runner{}).runSteps(t.Context(), s, f.scripts[IPv4].steps), s.close())
}
