package iptables

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	noRules   = "*filter\n:INPUT ACCEPT [0:0]\nCOMMIT\n"
	someRules = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\nCOMMIT\n"
	manyRules = "*filter\n:INPUT ACCEPT [0:0]\n-A INPUT -j ACCEPT\n-A INPUT -j DROP\n-A INPUT -j DROP\nCOMMIT\n"
	canary    = "*mangle\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
	hint      = "*mangle\n:KUBE-IPTABLES-HINT - [0:0]\nCOMMIT\n"
	misplaced = "*filter\n:KUBE-IPTABLES-HINT - [0:0]\n:KUBE-KUBELET-CANARY - [0:0]\nCOMMIT\n"
)

// node describes the programs on a node: what those of a name print when they
// save, or "fails", or "fails with -t".
type node struct {
	version string
	save    map[string]string
}

// install makes PATH hold programs that behave as described.
func (n node) install(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	write := func(name, script string) {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("#!/bin/sh\n"+script), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, save := range n.save {
		script := fmt.Sprintf("echo '%s'", save)
		switch save {
		case "fails":
			script = "echo 'no protocol' >&2; exit 1"
		case "fails with -t":
			script = `[ $# -eq 0 ] || { echo 'no table' >&2; exit 1; }`
		}
		write(name, "echo '"+n.version+"'")
		write(name+"-save", script)
		write(name+"-restore", "exit 0")
	}
}

func both(nft, legacy string) map[string]string {
	return map[string]string{
		"iptables-nft": nft, "ip6tables-nft": noRules, "iptables-legacy": legacy, "ip6tables-legacy": noRules,
		"iptables": noRules, "ip6tables": noRules,
	}
}

func TestDetect(t *testing.T) {
	const isNFT, isLegacy = "iptables v1.8.9 (nf_tables)", "iptables v1.8.9 (legacy)"
	for _, test := range []struct {
		name   string
		asked  string
		node   node
		want   string
		reason string
	}{
		{"hint in legacy beats more rules in nft", "", node{isNFT, both(manyRules, hint)}, Legacy, "KUBE-IPTABLES-HINT"},
		{"canary in nft", "", node{isLegacy, both(canary, someRules)}, NFT, "KUBE-KUBELET-CANARY"},
		{"rules elsewhere are told", "", node{isLegacy, both(canary, someRules)}, NFT, "iptables-legacy holds 1 rules as well"},
		{"hint chain of another table is none", "", node{isLegacy, both(misplaced, someRules)}, Legacy, "holds 1 rules"},
		{"only legacy has rules", "", node{isNFT, both(noRules, someRules)}, Legacy, "holds 1 rules"},
		{"both have rules", "", node{isNFT, both(someRules, manyRules)}, Legacy, "holds 3 rules"},
		{"as many rules", "", node{isLegacy, both(someRules, someRules)}, Legacy, "holds 1 rules"},
		{"no rules, nft by default", "", node{isNFT, both(noRules, noRules)}, NFT, "no rules anywhere"},
		{"no rules, legacy by default", "", node{isLegacy, both(noRules, noRules)}, Legacy, "no rules anywhere"},
		{"kernel without nft", "", node{isNFT, map[string]string{
			"iptables-nft": "fails", "ip6tables-nft": "fails", "iptables-legacy": noRules, "ip6tables-legacy": noRules,
			"iptables": noRules, "ip6tables": noRules,
		}}, Legacy, "it is the first that works"},
		{"asked for", Legacy, node{isNFT, both(hint, noRules)}, Legacy, "was asked for"},
		{"plain only", "", node{"iptables v1.6.1", map[string]string{"iptables": someRules, "ip6tables": noRules}}, Plain, "holds 1 rules"},
		{"no IPv6", "", node{isNFT, map[string]string{"iptables-nft": hint}}, NFT, "without IPv6"},
		{"legacy without tables", "", node{isLegacy, map[string]string{
			"iptables-legacy": "fails with -t", "ip6tables-legacy": "fails with -t", "iptables-nft": noRules, "ip6tables-nft": noRules,
		}}, NFT, "no rules anywhere"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.node.install(t)
			got, reason, err := Detect(t.Context(), test.asked)
			if err != nil {
				t.Fatal(err)
			}
			if got.Name != test.want || !strings.Contains(reason, test.reason) {
				t.Errorf("%s (%s), want %s (… %s …)", got.Name, reason, test.want, test.reason)
			}
			if without := strings.Contains(reason, "without"); without != (len(got.Families) == 1) {
				t.Errorf("families %v, but: %s", got.Families, reason)
			}
		})
	}
}

func TestDetectFailures(t *testing.T) {
	for _, test := range []struct {
		name, asked string
		node        node
		want        string
	}{
		{"nothing installed", "", node{}, "install the package iptables"},
		{"asked for and not installed", Legacy, node{"", map[string]string{"iptables-nft": noRules}}, "no program iptables-legacy"},
		{"unknown name", "ipfw", node{}, `"ipfw" is none of`},
		{"nothing works", "", node{"", map[string]string{"iptables-nft": "fails", "ip6tables-nft": "fails"}}, "no protocol"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.node.install(t)
			_, _, err := Detect(t.Context(), test.asked)
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

func TestRemovable(t *testing.T) {
	for _, test := range []struct {
		version, keep string
		want          []string
	}{
		{"iptables v1.8.9 (legacy)", "", []string{NFT, Legacy, Plain}},
		{"iptables v1.8.9 (legacy)", Legacy, []string{NFT}},
		{"iptables v1.8.9 (legacy)", NFT, []string{Legacy, Plain}},
		{"iptables v1.8.9 (nf_tables)", Plain, []string{Legacy}},
	} {
		node{test.version, map[string]string{"iptables": noRules}}.install(t)
		if got := removable(t.Context(), test.keep); !slices.Equal(got, test.want) {
			t.Errorf("%s, keeping %q: %v, want %v", test.version, test.keep, got, test.want)
		}
	}
}

func TestRunSaysWhatTheProgramSaid(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("PATH", dir)
	for _, test := range []struct {
		script, want string
		is           error
	}{
		{"echo \"Set X doesn't exist.\" >&2; echo >&2; echo 'Error occurred at line: 2' >&2; exit 2",
			"exit status 2: Set X doesn't exist.; Error occurred at line: 2 (-A KIPVS-A -j DROP)", nil},
		{"echo 'Another app is currently holding the xtables lock. Stopped waiting after 5s.' >&2; exit 4",
			"the xtables lock is held by another process", ErrLocked},
		{"echo 'Could not fetch rule set generation id' >&2; exit 4", "generation id", nil},
	} {
		if err := os.WriteFile(filepath.Join(dir, "iptables-restore"), []byte("#!/bin/sh\n"+test.script), 0o755); err != nil {
			t.Fatal(err)
		}
		k := &programs{flavour: Flavour{Name: Plain, Families: []state.Family{state.IPv4}}}
		err := k.restore(t.Context(), state.IPv4, "*filter\n-A KIPVS-A -j DROP\nCOMMIT\n")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("error %v, want %q in it", err, test.want)
		}
		if errors.Is(err, ErrLocked) != (test.is == ErrLocked) {
			t.Errorf("error %v: is it %v?", err, ErrLocked)
		}
	}
}

func TestDetectFindsOursElsewhere(t *testing.T) {
	ours := "*filter\n:INPUT ACCEPT [0:0]\n:KIPVS-INPUT - [0:0]\nCOMMIT\n"
	for name, c := range map[string]struct {
		node node
		want bool
	}{
		"in the other flavour": {node{"iptables v1.8.9 (nf_tables)", both(hint, ours)}, true},
		"in the chosen one":    {node{"iptables v1.8.9 (nf_tables)", both(hint+ours, noRules)}, false},
		"nowhere":              {node{"iptables v1.8.9 (nf_tables)", both(hint, someRules)}, false},
	} {
		t.Run(name, func(t *testing.T) {
			c.node.install(t)
			got, _, err := Detect(t.Context(), "")
			if err != nil || got.elsewhere != c.want {
				t.Errorf("elsewhere %t, %v", got.elsewhere, err)
			}
		})
	}
}
