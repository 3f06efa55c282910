package sysctl

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// readOnly is a setting that not even root can change, and its value.
const (
	readOnly      = "/proc/sys/kernel/ngroups_max"
	readOnlyValue = 65536
)

// tree makes a directory of settings.
func tree(t *testing.T, values map[string]string) string {
	root := t.TempDir()
	for key, value := range values {
		file := path(root, key)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if value == "read-only" {
			if err := os.Symlink(readOnly, file); err != nil {
				t.Fatal(err)
			}
			continue
		}
		if err := os.WriteFile(file, []byte(value), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestEnsure(t *testing.T) {
	const key = "net.ipv4.vs.conntrack"
	for _, test := range []struct {
		name    string
		has     string // empty: the kernel does not have it
		setting Setting
		changed []Changed
		err     []string
	}{
		{"as wanted", "1\n", Setting{Key: key, Value: 1}, nil, nil},
		{"other", "0\n", Setting{Key: key, Value: 1}, []Changed{{key, 0, 1}}, nil},
		{"to nothing", "1\n", Setting{Key: key}, []Changed{{key, 1, 0}}, nil},
		{"greater", "7\n", Setting{Key: key, Value: 5}, []Changed{{key, 7, 5}}, nil},
		{"greater is good", "7\n", Setting{Key: key, Value: 5, AtLeast: true}, nil, nil},
		{"smaller is not", "3\n", Setting{Key: key, Value: 5, AtLeast: true}, []Changed{{key, 3, 5}}, nil},
		{"absent", "", Setting{Key: key, Value: 1}, nil, []string{key, "must be 1", "ip_vs"}},
		{"absent and optional", "", Setting{Key: key, Value: 1, Optional: true}, nil, nil},
		{"read-only and right", "read-only", Setting{Key: key, Value: readOnlyValue}, nil, nil},
		{"read-only and wrong", "read-only", Setting{Key: key, Value: 1}, nil,
			[]string{key + " is 65536 and must be 1", "init container", "/etc/sysctl.d"}},
		{"no number", "cubic\n", Setting{Key: key, Value: 1}, nil, []string{key, "cubic"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			values := map[string]string{}
			if test.has != "" {
				values[key] = test.has
			}
			root := tree(t, values)
			changed, err := Ensure(root, []Setting{test.setting})
			if !slices.Equal(changed, test.changed) {
				t.Errorf("changed %v, want %v", changed, test.changed)
			}
			if (err != nil) != (test.err != nil) {
				t.Fatalf("error %v", err)
			}
			for _, w := range test.err {
				if !strings.Contains(err.Error(), w) {
					t.Errorf("no %q in: %v", w, err)
				}
			}
			if len(changed) > 0 {
				if got, err := read(root, key); err != nil || got != test.setting.Value {
					t.Errorf("the file holds %d, %v", got, err)
				}
				again, err := Ensure(root, []Setting{test.setting})
				if len(again) != 0 || err != nil {
					t.Errorf("a second time: %v, %v", again, err)
				}
			}
		})
	}
}

func TestEnsureGoesOnAfterAnError(t *testing.T) {
	root := tree(t, map[string]string{"a.one": "read-only", "a.three": "0"})
	changed, err := Ensure(root, []Setting{{Key: "a.one", Value: 1}, {Key: "a.two", Value: 1}, {Key: "a.three", Value: 1}})
	if want := []Changed{{"a.three", 0, 1}}; !slices.Equal(changed, want) {
		t.Errorf("changed %v, want %v", changed, want)
	}
	if err == nil || !strings.Contains(err.Error(), "a.one") || !strings.Contains(err.Error(), "a.two") {
		t.Errorf("error %v, want one about a.one and a.two", err)
	}
	if _, err := os.Stat(path(root, "a.two")); !errors.Is(err, fs.ErrNotExist) {
		t.Error("a setting was made that the kernel does not have")
	}
}

func TestRestore(t *testing.T) {
	root := tree(t, map[string]string{"a.one": "0", "a.two": "0", "a.gone": "0"})
	changed, err := Ensure(root, []Setting{{Key: "a.one", Value: 1}, {Key: "a.two", Value: 1}, {Key: "a.gone", Value: 1}})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path(root, "a.two"), []byte("2"), 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.Remove(path(root, "a.gone")); err != nil {
		t.Fatal(err)
	}
	if err := Restore(root, changed); err != nil {
		t.Fatal(err)
	}
	for key, want := range map[string]int{"a.one": 0, "a.two": 2} {
		if got, err := read(root, key); got != want || err != nil {
			t.Errorf("%s is %d (%v), want %d", key, got, err, want)
		}
	}
}

func TestPath(t *testing.T) {
	if got, want := path("/proc/sys", "net.ipv4.conf.eth0/100.arp_ignore"), "/proc/sys/net/ipv4/conf/eth0.100/arp_ignore"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

func TestIPVS(t *testing.T) {
	always := map[string]int{
		"net.ipv4.vs.conntrack": 1, "net.ipv4.vs.expire_nodest_conn": 1,
		"net.ipv4.vs.expire_quiescent_template": 1, "net.ipv4.ip_forward": 1,
	}
	for _, test := range []struct {
		release string
		options Options
		also    map[string]int
	}{
		{"6.1.0-13-amd64", Options{}, map[string]int{"net.ipv4.vs.conn_reuse_mode": 1}},
		{"5.9.0", Options{}, map[string]int{"net.ipv4.vs.conn_reuse_mode": 1}},
		{"5.8.18-100.fc31", Options{}, map[string]int{"net.ipv4.vs.conn_reuse_mode": 0}},
		{"4.18.0-553.el8_10.x86_64", Options{IPv6: true}, map[string]int{
			"net.ipv4.vs.conn_reuse_mode": 0, "net.ipv6.conf.all.forwarding": 1}},
		{"6.12.5", Options{IPv6: true, StrictARP: true}, map[string]int{
			"net.ipv4.vs.conn_reuse_mode": 1, "net.ipv6.conf.all.forwarding": 1,
			"net.ipv4.conf.all.arp_ignore": 1, "net.ipv4.conf.all.arp_announce": 2}},
	} {
		v, err := ParseVersion(test.release)
		if err != nil {
			t.Fatal(err)
		}
		got := IPVS(v, test.options)
		if len(got) != len(always)+len(test.also) {
			t.Errorf("%s %+v: %d settings, want %d", test.release, test.options, len(got), len(always)+len(test.also))
		}
		for _, s := range got {
			want, ok := always[s.Key]
			if !ok {
				want, ok = test.also[s.Key]
			}
			if !ok || s.Value != want {
				t.Errorf("%s %+v: %s=%d, want %d", test.release, test.options, s.Key, s.Value, want)
			}
		}
	}
	if _, err := ParseVersion("unknown"); err == nil {
		t.Error("a release without numbers was taken")
	}
}
