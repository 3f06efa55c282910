package watch

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

func TestRestConfig(t *testing.T) {
	t.Setenv("KUBERNETES_SERVICE_HOST", "")
	dir := t.TempDir()
	good, bad := filepath.Join(dir, "good"), filepath.Join(dir, "bad")
	must(t, os.WriteFile(good, []byte(`{apiVersion: v1, kind: Config, current-context: c,
contexts: [{name: c, context: {cluster: k, user: u}}], users: [{name: u, user: {token: t}}],
clusters: [{name: k, cluster: {server: "https://192.0.2.1:6443"}}]}`), 0o600))
	must(t, os.WriteFile(bad, []byte("clusters: 7"), 0o600))
	missing := filepath.Join(dir, "missing")
	tests := map[string]struct {
		kubeconfig, master string
		host, err          string
	}{
		"file":         {good, "", "https://192.0.2.1:6443", ""},
		"master wins":  {good, "https://192.0.2.2:6443", "https://192.0.2.2:6443", ""},
		"master alone": {"", "http://192.0.2.3:8080", "http://192.0.2.3:8080", ""},
		"neither":      {"", "", "", "give --kubeconfig FILE"},
		"no such file": {missing, "", "", missing},
		"broken file":  {bad, "", "", bad},
	}
	for label, test := range tests {
		t.Run(label, func(t *testing.T) {
			config, err := restConfig(test.kubeconfig, test.master)
			if test.err != "" {
				if err == nil || !strings.Contains(err.Error(), test.err) {
					t.Fatalf("error %v, want %q", err, test.err)
				}
				return
			}
			must(t, err)
			if config.Host != test.host {
				t.Errorf("host %s, want %s", config.Host, test.host)
			}
		})
	}
}

func TestClient(t *testing.T) {
	client, err := Client("", "http://192.0.2.3:8080", "application/vnd.kubernetes.protobuf", "", 5, 10, "kube-ipvs")
	if err != nil || client == nil {
		t.Fatalf("got %v, %v", client, err)
	}
}
