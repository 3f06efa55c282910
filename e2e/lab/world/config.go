package world

import (
	"encoding/json"
	"fmt"
	"net"
	"os"
)

// apiOnNode is where a node's own 127.0.0.1 leads to the API server.
const apiOnNode = "127.0.0.1:16443"

// baseConfig is the configuration of every proxy before a file changes it.
func baseConfig(node, kubeconfig string) map[string]any {
	return map[string]any{
		"apiVersion": "kubeproxy.config.k8s.io/v1alpha1", "kind": "KubeProxyConfiguration",
		"mode":             "ipvs",
		"clusterCIDR":      "10.244.0.0/16,fd00:244::/32",
		"hostnameOverride": node,
		"clientConnection": map[string]any{"kubeconfig": kubeconfig},
		"ipvs":             map[string]any{"scheduler": "rr"},
		"conntrack":        map[string]any{"maxPerCore": 0, "min": 0}, // a namespace cannot set the machine's limits
	}
}

// merge lays one configuration over another: maps are merged, anything else is replaced. Neither is changed.
func merge(under, over map[string]any) map[string]any {
	result := map[string]any{}
	for k, v := range under {
		result[k] = v
	}
	for k, v := range over {
		below, ok1 := result[k].(map[string]any)
		above, ok2 := v.(map[string]any)
		if ok1 && ok2 {
			v = merge(below, above)
		}
		result[k] = v
	}
	return result
}

// writeJSON writes a value; JSON is YAML.
func writeJSON(path string, value any) error {
	data, err := json.MarshalIndent(value, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(path, append(data, '\n'), 0o600)
}

// kubeconfig is the way to the API server from a node.
func kubeconfig(token string) map[string]any {
	return map[string]any{
		"apiVersion": "v1", "kind": "Config", "current-context": "lab",
		"clusters": []any{map[string]any{"name": "lab", "cluster": map[string]any{
			"server": "https://" + apiOnNode, "insecure-skip-tls-verify": true,
		}}},
		"users":    []any{map[string]any{"name": "proxy", "user": map[string]any{"token": token}}},
		"contexts": []any{map[string]any{"name": "lab", "context": map[string]any{"cluster": "lab", "user": "proxy"}}},
	}
}

// healthAddress is where a proxy with this configuration answers its health checks, from inside its node.
func healthAddress(config map[string]any) (string, error) {
	bind, _ := config["healthzBindAddress"].(string)
	if bind == "" {
		bind = "0.0.0.0:10256"
	}
	if ip := net.ParseIP(bind); ip != nil {
		bind = net.JoinHostPort(bind, "10256")
	}
	ip, port, err := net.SplitHostPort(bind)
	if err != nil {
		return "", fmt.Errorf("healthzBindAddress %q: %w", bind, err)
	}
	if parsed := net.ParseIP(ip); parsed == nil || parsed.IsUnspecified() {
		ip = "127.0.0.1"
	}
	return net.JoinHostPort(ip, port), nil
}
