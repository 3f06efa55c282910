package world

import (
	"reflect"
	"testing"
)

func TestMerge(t *testing.T) {
	under := map[string]any{
		"mode": "ipvs", "ipvs": map[string]any{"scheduler": "rr", "strictARP": false}, "nodePortAddresses": []any{"primary"},
	}
	over := map[string]any{
		"ipvs": map[string]any{"strictARP": true}, "nodePortAddresses": []any{"192.0.2.0/24"}, "detectLocalMode": "NodeCIDR",
	}
	got := merge(under, over)
	want := map[string]any{
		"mode": "ipvs", "ipvs": map[string]any{"scheduler": "rr", "strictARP": true},
		"nodePortAddresses": []any{"192.0.2.0/24"}, "detectLocalMode": "NodeCIDR",
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if under["ipvs"].(map[string]any)["strictARP"] != false {
		t.Error("the lower configuration was changed")
	}
}

func TestHealthAddress(t *testing.T) {
	for bind, want := range map[string]string{
		"":               "127.0.0.1:10256",
		"0.0.0.0:10300":  "127.0.0.1:10300",
		"[::]:10300":     "127.0.0.1:10300",
		"192.0.2.11":     "192.0.2.11:10256",
		"127.0.0.2:1234": "127.0.0.2:1234",
	} {
		got, err := healthAddress(map[string]any{"healthzBindAddress": bind})
		if err != nil || got != want {
			t.Errorf("%q: got %q, %v; want %q", bind, got, err, want)
		}
	}
}

func TestBinaryArgs(t *testing.T) {
	for name, want := range map[string][]string{
		"kube-ipvs":  {"run", "--config", "f", "--cleanup"},
		"kube-proxy": {"--config", "f", "--cleanup"},
	} {
		if got := (binary{name: name}).args("f", []string{"--cleanup"}); !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %v, want %v", name, got, want)
		}
	}
}
