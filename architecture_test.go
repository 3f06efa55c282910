package kubeipvs_test

import (
	"encoding/json"
	"errors"
	"io"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

const module = "github.com/kube-ipvs/kube-ipvs/"

// allowed says which packages of this module a package may import, and which of
// the libraries that only one place may know.
var allowed = map[string]struct{ own, libraries []string }{
	"state":     {},
	"desired":   {own: []string{"state"}},
	"ipvs":      {own: []string{"state"}, libraries: []string{"github.com/moby/ipvs", "github.com/vishvananda/netlink"}},
	"ipset":     {own: []string{"state"}, libraries: []string{"github.com/vishvananda/netlink"}},
	"vip":       {own: []string{"state"}, libraries: []string{"github.com/vishvananda/netlink"}},
	"conntrack": {own: []string{"state"}, libraries: []string{"github.com/vishvananda/netlink"}},
	"iptables":  {own: []string{"state"}, libraries: []string{"github.com/coreos/go-iptables"}},
	"sysctl":    {},
	"health":    {own: []string{"state"}},
	"config":    {libraries: []string{"k8s.io"}},
	"watch":     {own: []string{"state"}, libraries: []string{"k8s.io", "github.com/vishvananda/netlink", "go.uber.org/zap"}},
	"proxy":     {own: []string{"state", "desired"}, libraries: []string{"go.uber.org/zap"}},
	"metrics":   {own: []string{"state", "desired", "proxy"}},
}

// guarded are the libraries that not everybody may import.
var guarded = []string{
	"github.com/moby/ipvs", "github.com/vishvananda/netlink", "github.com/coreos/go-iptables",
	"k8s.io", "go.uber.org/zap", "k8s.io/kubernetes",
}

type goPackage struct {
	ImportPath string
	Imports    []string
}

// TestImports holds the rule who may import whom.
func TestImports(t *testing.T) {
	for _, p := range packages(t) {
		name := strings.TrimPrefix(p.ImportPath, module)
		rule, known := allowed[name]
		if !known {
			wires := strings.HasPrefix(name, "cmd/") || strings.HasPrefix(name, "e2e/") || name == strings.TrimSuffix(module, "/")
			if !wires {
				t.Errorf("package %s has no rule here", name)
			}
			continue
		}
		for _, i := range p.Imports {
			if own, ours := strings.CutPrefix(i, module); ours && !slices.Contains(rule.own, own) {
				t.Errorf("%s must not import %s", name, own)
			}
			if !libraryAllowed(i, rule.libraries) {
				t.Errorf("%s must not import %s", name, i)
			}
		}
	}
}

func libraryAllowed(path string, libraries []string) bool {
	under := func(prefix string) bool { return path == prefix || strings.HasPrefix(path, prefix+"/") }
	return !slices.ContainsFunc(guarded, under) || slices.ContainsFunc(libraries, under)
}

func packages(t *testing.T) []goPackage {
	t.Helper()
	out, err := exec.Command("go", "list", "-json=ImportPath,Imports", "./...").Output()
	if err != nil {
		t.Fatal(err)
	}
	var all []goPackage
	decoder := json.NewDecoder(strings.NewReader(string(out)))
	for {
		var p goPackage
		err := decoder.Decode(&p)
		if errors.Is(err, io.EOF) {
			return all
		}
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}
