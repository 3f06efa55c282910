package proxy

import (
	"flag"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/desired"
	"github.com/kube-ipvs/kube-ipvs/state"
	"github.com/kube-ipvs/kube-ipvs/vip"
	"github.com/kube-ipvs/kube-ipvs/watch"
	"github.com/rogpeppe/go-internal/testscript"
	"go.uber.org/zap"
)

var update = flag.Bool("update", false, "rewrite the golden text of the scripts")

// The scripts in testdata/script are one for each feature: objects as
// manifests, what happens, and the whole node state as golden text. go test
// -run Scripts -update rewrites the golden text.
//
//	options WORD...      settings of the proxy, in force from the next start on
//	apply FILE...        take over manifests; again after a change of the file
//	remove FILE...       take the objects of a file away
//	addresses ADDR...    the node's own addresses
//	connections SERVER REAL ACTIVE [INACTIVE]
//	clock DURATION       let time pass
//	clear servers|sets|device   as somebody else might
//	restart              a new proxy process on the same kernel
//	quit                 no proxy process until something is applied
//	sync                 bring the kernel in step; prints the node's state
//	rules                prints the iptables rules
//	pods                 prints the sets of pods' addresses, for the detector
func TestScripts(t *testing.T) { runScripts(t, nil) }

// TestScriptsWithFaults runs each script with one kernel call in ten failing
// during every sync. Once the faults stop, the same state must be there.
func TestScriptsWithFaults(t *testing.T) {
	for seed := range uint64(3) {
		t.Run(fmt.Sprint(seed), func(t *testing.T) { runScripts(t, &seed) })
	}
}

func runScripts(t *testing.T, seed *uint64) {
	testscript.Run(t, testscript.Params{
		Dir:           "testdata/script",
		UpdateScripts: *update && seed == nil,
		Setup: func(env *testscript.Env) error {
			env.Values["stage"] = newStage(env.WorkDir, seed)
			return nil
		},
		Cmds: map[string]func(*testscript.TestScript, bool, []string){
			"options":     onStage((*stage).setOptions),
			"apply":       onStage((*stage).apply),
			"remove":      onStage((*stage).remove),
			"addresses":   onStage((*stage).setAddresses),
			"connections": onStage((*stage).connections),
			"clock":       onStage((*stage).clock),
			"clear":       onStage((*stage).clear),
			"restart":     onStage((*stage).restart),
			"quit":        onStage((*stage).quit),
			"sync":        onStage((*stage).sync),
			"rules":       onStage((*stage).printRules),
			"pods":        onStage((*stage).printPods),
		},
	})
}

// stage is what a script acts on.
type stage struct {
	dir     string
	seed    *uint64
	kernel  *kernel
	options *desired.Options
	rig     *rig
	files   map[string]bool
	objects objects
}

func newStage(dir string, seed *uint64) *stage {
	return &stage{dir: dir, seed: seed, kernel: newKernel(), options: testOptions(), files: map[string]bool{}}
}

// onStage turns a method into a command of the scripts.
func onStage(do func(*stage, *testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("the command cannot be negated")
		}
		do(ts.Value("stage").(*stage), ts, args)
	}
}

func (s *stage) proxy() *rig {
	if s.rig == nil {
		s.rig = s.kernel.start(s.options)
		s.objects = objects{}
	}
	return s.rig
}

func (s *stage) setOptions(ts *testscript.TestScript, args []string) {
	for _, arg := range args {
		key, value, _ := strings.Cut(arg, "=")
		switch key {
		case "scheduler":
			sched, err := desired.ParseScheduler(value)
			ts.Check(err)
			s.options.Scheduler = sched
		case "masquerade-all":
			s.options.MasqueradeAll = true
		case "detector":
			s.options.Detector = detectorOf(value)
		case "nodeports":
			s.options.NodePorts = nodePortsOf(value)
		case "no-ping":
			s.options.AnswerPing = false
		case "ignore-external-ips":
			s.options.IgnoreExternalIPs = true
		default:
			ts.Fatalf("unknown option %q", arg)
		}
	}
}

func detectorOf(value string) desired.Detector {
	switch {
	case value == "none":
		return desired.Detector{}
	case value == "node":
		return desired.Detector{NodeCIDRs: true}
	}
	return desired.Detector{Interface: value}
}

// nodePortsOf reads CIDRs and keywords, separated by commas.
func nodePortsOf(value string) desired.NodePortAddresses {
	var n desired.NodePortAddresses
	for word := range strings.SplitSeq(value, ",") {
		switch word {
		case "primary":
			n.Primary = true
		case "localhost":
			n.Localhost = true
		case "all":
			n.All = true
		default:
			n.CIDRs = append(n.CIDRs, netip.MustParsePrefix(word))
		}
	}
	return n
}

func (s *stage) apply(ts *testscript.TestScript, args []string) {
	s.proxy()
	for _, f := range args {
		s.files[f] = true
	}
	s.feed(ts)
}

func (s *stage) remove(ts *testscript.TestScript, args []string) {
	for _, f := range args {
		delete(s.files, f)
	}
	s.feed(ts)
}

// feed hands the proxy what differs between its objects and the files.
func (s *stage) feed(ts *testscript.TestScript) {
	dir := filepath.Join(s.dir, "manifests")
	ts.Check(os.RemoveAll(dir))
	ts.Check(os.MkdirAll(dir, 0o755))
	for f := range s.files {
		ts.Check(os.WriteFile(filepath.Join(dir, f), []byte(ts.ReadFile(f)), 0o644))
	}
	now := objects{}
	ts.Check(watch.ReadManifests(dir, now, zap.NewNop()))
	s.objects.becomes(now, s.proxy().proxy.Sink())
	s.objects = now
}

func (s *stage) setAddresses(_ *testscript.TestScript, args []string) {
	var list []netip.Addr
	for _, a := range args {
		list = append(list, addr(a))
	}
	s.proxy().proxy.Sink().SetAddresses(list)
}

func (s *stage) connections(ts *testscript.TestScript, args []string) {
	key := state.ServerKey{Protocol: state.TCP}
	proto, at, found := strings.Cut(args[0], "/")
	if found {
		p, err := state.ParseProtocol(proto)
		ts.Check(err)
		key.Protocol, args[0] = p, at
	}
	server := netip.MustParseAddrPort(args[0])
	key.Addr, key.Port = server.Addr(), server.Port()
	counts := []int{0, 0}
	for i, text := range args[2:] {
		n, err := strconv.Atoi(text)
		ts.Check(err)
		counts[i] = n
	}
	s.kernel.servers.Connections(key, netip.MustParseAddrPort(args[1]), counts[0], counts[1])
}

func (s *stage) clock(ts *testscript.TestScript, args []string) {
	d, err := time.ParseDuration(args[0])
	ts.Check(err)
	s.kernel.now = s.kernel.now.Add(d)
}

func (s *stage) clear(ts *testscript.TestScript, args []string) {
	switch args[0] {
	case "servers":
		s.kernel.servers.Clear()
	case "sets":
		s.kernel.sets.Flush()
	case "device":
		s.kernel.vips.Delete(vip.DefaultDevice)
	default:
		ts.Fatalf("cannot clear %q", args[0])
	}
}

func (s *stage) restart(ts *testscript.TestScript, _ []string) {
	s.rig = nil
	s.proxy()
	s.feed(ts)
}

func (s *stage) quit(*testscript.TestScript, []string) { s.rig = nil }

// sync settles, with faults if asked, and proves that a second look changes
// nothing.
func (s *stage) sync(ts *testscript.TestScript, _ []string) {
	r := s.proxy()
	if s.seed != nil {
		s.fault(oneInTen(*s.seed))
		for range 5 {
			_, _ = r.settle()
			r.proxy.schedule.retryAt = time.Time{}
		}
		s.fault(nil)
		_, err := r.again()
		ts.Check(err)
	}
	_, err := r.settle()
	ts.Check(err)
	n, err := r.again()
	ts.Check(err)
	if n != 0 {
		ts.Fatalf("a second sync did %d operations", n)
	}
	fmt.Fprint(ts.Stdout(), s.print())
}

func (s *stage) fault(f func(string) error) {
	s.kernel.sets.Fault, s.kernel.vips.Fault, s.kernel.servers.Fault, s.kernel.rules.Fault = f, f, f, f
}

// print writes the node's state in the tools' own formats: virtual servers,
// addresses, the sets' entries, health-check ports, and what is wrong with
// Services.
func (s *stage) print() string {
	var b strings.Builder
	b.WriteString(s.kernel.servers.Save())
	for line := range strings.Lines(s.kernel.vips.Show(vip.DefaultDevice)) {
		b.WriteString(line)
	}
	for line := range strings.Lines(s.kernel.sets.Save()) {
		if strings.HasPrefix(line, "add ") && !isPod(line) {
			b.WriteString(line)
		}
	}
	checks := s.rig.checks.want
	for _, name := range slices.SortedFunc(maps.Keys(checks), func(a, b state.Name) int { return strings.Compare(a.String(), b.String()) }) {
		fmt.Fprintf(&b, "health check %s port %d local %d %s\n", name, checks[name].Port, checks[name].Local, where(checks[name].Addresses))
	}
	for _, name := range slices.SortedFunc(maps.Keys(s.rig.problems), func(a, b state.Name) int { return strings.Compare(a.String(), b.String()) }) {
		for _, p := range s.rig.problems[name] {
			fmt.Fprintf(&b, "problem %s %s: %s\n", name, p.Reason, p.Message)
		}
	}
	return b.String()
}

// where prints the addresses that a health check listens on.
func where(addresses []netip.Addr) string {
	if addresses == nil {
		return "on every address"
	}
	return fmt.Sprintf("on %v", addresses)
}

func (s *stage) printRules(ts *testscript.TestScript, _ []string) {
	for _, f := range s.options.Families {
		for line := range strings.Lines(s.kernel.rules.Save(f)) {
			if strings.HasPrefix(line, "-A ") || strings.HasPrefix(line, "*") {
				fmt.Fprint(ts.Stdout(), line)
			}
		}
	}
}

func (s *stage) printPods(ts *testscript.TestScript, _ []string) {
	out := ts.Stdout()
	for line := range strings.Lines(s.kernel.sets.Save()) {
		if isPod(line) {
			fmt.Fprint(out, line)
		}
	}
}

// isPod tells whether a line of "ipset save" is an entry of a pods' set.
func isPod(line string) bool {
	return strings.HasPrefix(line, "add KIPVS-POD ") || strings.HasPrefix(line, "add KIPVS6-POD ")
}

// objects collects what manifests hold, by kind and name.
type objects map[string]func(state.Sink) (remove func(state.Sink))

func (o objects) SetService(s *state.Service) {
	o["service "+s.Name.String()] = func(sink state.Sink) func(state.Sink) {
		sink.SetService(s)
		return func(sink state.Sink) { sink.DeleteService(s.Name) }
	}
}

func (o objects) SetSlice(s *state.Slice) {
	o["slice "+s.Name.String()] = func(sink state.Sink) func(state.Sink) {
		sink.SetSlice(s)
		return func(sink state.Sink) { sink.DeleteSlice(s.Name) }
	}
}

func (o objects) SetNode(n *state.ClusterNode) {
	o["node "+n.Name] = func(sink state.Sink) func(state.Sink) {
		sink.SetNode(n)
		return func(sink state.Sink) { sink.DeleteNode(n.Name) }
	}
}

func (objects) DeleteService(state.Name)  {}
func (objects) DeleteSlice(state.Name)    {}
func (objects) DeleteNode(string)         {}
func (objects) SetAddresses([]netip.Addr) {}
func (objects) Synced()                   {}
func (objects) Disturbed()                {}

// becomes brings a sink from these objects to others.
func (o objects) becomes(now objects, sink state.Sink) {
	for key, set := range o {
		if now[key] == nil {
			set(discard{})(sink)
		}
	}
	for _, set := range now {
		set(sink)
	}
}

// discard is a sink that forgets everything.
type discard struct{ objects }

func (discard) SetService(*state.Service)  {}
func (discard) SetSlice(*state.Slice)      {}
func (discard) SetNode(*state.ClusterNode) {}
