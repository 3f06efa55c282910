package health

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

var (
	web      = state.Name{Namespace: "shop", Name: "web"}
	loopback = []netip.Addr{netip.MustParseAddr("127.0.0.1")}
)

// freePort returns a TCP port that nobody listens on.
func freePort(t *testing.T) uint16 {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return netip.MustParseAddrPort(l.Addr().String()).Port()
}

func checksFor(t *testing.T, healthy func() bool) *Checks {
	c := NewChecks(healthy)
	t.Cleanup(c.Close)
	return c
}

func yes() bool { return true }

// want is what one Service's check shall be.
func want(port uint16, local int, addresses ...netip.Addr) map[state.Name]state.HealthCheck {
	return map[state.Name]state.HealthCheck{web: {Port: port, Local: local, Addresses: addresses}}
}

func mustSync(t *testing.T, c *Checks, want map[state.Name]state.HealthCheck) {
	t.Helper()
	if failed := c.Sync(want); len(failed) > 0 {
		t.Fatal(failed)
	}
}

// ask sends a request on a connection of its own.
func ask(t *testing.T, method, url string) (*http.Response, string) {
	t.Helper()
	client := &http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{DisableKeepAlives: true}}
	request, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	response, err := client.Do(request)
	if err != nil {
		t.Fatal(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(response.Body)
	if err != nil {
		t.Fatal(err)
	}
	return response, string(body)
}

func urlOf(port uint16, path string) string { return fmt.Sprintf("http://127.0.0.1:%d%s", port, path) }

func refused(t *testing.T, address string) {
	t.Helper()
	c, err := net.DialTimeout("tcp", address, 10*time.Second)
	if err == nil {
		c.Close()
		t.Errorf("%s is open", address)
	}
}

func TestCheckAnswers(t *testing.T) {
	healthy := true
	c := checksFor(t, func() bool { return healthy })
	port := freePort(t)
	for _, test := range []struct {
		name    string
		local   int
		healthy bool
		code    int
		body    string
	}{
		{"S69 pods here, the proxy works", 2, true, 200,
			"{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 2,\n\t\"serviceProxyHealthy\": true\n}\n"},
		{"S69 no pod here", 0, true, 503,
			"{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 0,\n\t\"serviceProxyHealthy\": true\n}\n"},
		{"S69 the proxy does not work", 3, false, 503,
			"{\n\t\"service\": {\n\t\t\"namespace\": \"shop\",\n\t\t\"name\": \"web\"\n\t},\n\t\"localEndpoints\": 3,\n\t\"serviceProxyHealthy\": false\n}\n"},
	} {
		t.Run(test.name, func(t *testing.T) {
			healthy = test.healthy
			mustSync(t, c, want(port, test.local, loopback...))
			response, body := ask(t, http.MethodGet, urlOf(port, "/"))
			if response.StatusCode != test.code {
				t.Errorf("status %d, want %d", response.StatusCode, test.code)
			}
			if body != test.body { // S68
				t.Errorf("body %q, want %q", body, test.body)
			}
			for header, value := range map[string]string{ // S67
				"Content-Type":                     "application/json",
				"X-Content-Type-Options":           "nosniff",
				"X-Load-Balancing-Endpoint-Weight": fmt.Sprint(test.local),
			} {
				if got := response.Header[header]; len(got) != 1 || got[0] != value {
					t.Errorf("header %s: %q, want %q", header, got, value)
				}
			}
		})
	}
}

func TestS66AnyPathAndMethod(t *testing.T) {
	c := checksFor(t, yes)
	port := freePort(t)
	mustSync(t, c, want(port, 1, loopback...))
	for _, method := range []string{http.MethodGet, http.MethodHead, http.MethodPost, http.MethodDelete} {
		for _, path := range []string{"/", "/healthz", "/some/where?else=1"} {
			if response, _ := ask(t, method, urlOf(port, path)); response.StatusCode != http.StatusOK {
				t.Errorf("%s %s: %s", method, path, response.Status)
			}
		}
	}
}

func TestS66ListensWhereAsked(t *testing.T) {
	c := checksFor(t, yes)
	port := freePort(t)
	t.Log("on every address: of both families, where the host has them")
	mustSync(t, c, want(port, 1))
	ask(t, http.MethodGet, urlOf(port, "/"))
	ask(t, http.MethodGet, fmt.Sprintf("http://127.0.0.2:%d/", port))
	if l, err := net.Listen("tcp6", "[::1]:0"); err == nil {
		l.Close()
		ask(t, http.MethodGet, fmt.Sprintf("http://[::1]:%d/", port))
	}

	t.Log("on two addresses, and no other")
	mustSync(t, c, want(port, 1, netip.MustParseAddr("127.0.0.2"), netip.MustParseAddr("127.0.0.3")))
	ask(t, http.MethodGet, fmt.Sprintf("http://127.0.0.2:%d/", port))
	ask(t, http.MethodGet, fmt.Sprintf("http://127.0.0.3:%d/", port))
	refused(t, fmt.Sprintf("127.0.0.1:%d", port))
}

func TestS70PortInUse(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(other.Addr().String()).Port()
	c := checksFor(t, yes)
	failed := c.Sync(want(port, 1, loopback...))
	if err := failed[web]; err == nil || !strings.Contains(err.Error(), "shop/web") || !strings.Contains(err.Error(), syscall.EADDRINUSE.Error()) {
		t.Errorf("error %v", err)
	}
	other.Close()
	mustSync(t, c, want(port, 1, loopback...))
	ask(t, http.MethodGet, urlOf(port, "/"))
}

// TestS70PortInUseOnOneAddress: a conflict on one of several addresses is one.
func TestS70PortInUseOnOneAddress(t *testing.T) {
	other, err := net.Listen("tcp", "127.0.0.2:0")
	if err != nil {
		t.Fatal(err)
	}
	port := netip.MustParseAddrPort(other.Addr().String()).Port()
	c := checksFor(t, yes)
	both := want(port, 1, netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("127.0.0.2"))
	if failed := c.Sync(both); failed[web] == nil {
		t.Error("no error")
	}
	other.Close()
	mustSync(t, c, both)
	ask(t, http.MethodGet, fmt.Sprintf("http://127.0.0.2:%d/", port))
}

func TestS72PortCloses(t *testing.T) {
	c := checksFor(t, yes)
	first, second := freePort(t), freePort(t)
	mustSync(t, c, want(first, 1, loopback...))
	ask(t, http.MethodGet, urlOf(first, "/"))

	t.Log("another port: the old one closes, the new one opens")
	mustSync(t, c, want(second, 1, loopback...))
	refused(t, fmt.Sprintf("127.0.0.1:%d", first))
	ask(t, http.MethodGet, urlOf(second, "/"))

	t.Log("the Service goes, or its policy Local")
	mustSync(t, c, nil)
	refused(t, fmt.Sprintf("127.0.0.1:%d", second))
}

func TestS72CountChangesWithoutClosing(t *testing.T) {
	c := checksFor(t, yes)
	port := freePort(t)
	mustSync(t, c, want(port, 1, loopback...))
	connection, err := net.Dial("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err != nil {
		t.Fatal(err)
	}
	defer connection.Close()
	mustSync(t, c, want(port, 5, loopback...))
	fmt.Fprintf(connection, "GET / HTTP/1.0\r\n\r\n")
	answer, err := io.ReadAll(connection)
	if err != nil || !strings.Contains(string(answer), "X-Load-Balancing-Endpoint-Weight: 5\r\n") {
		t.Errorf("answer %q, %v", answer, err)
	}
}

func TestS66EachServiceHasItsOwnPort(t *testing.T) {
	c := checksFor(t, yes)
	shop := state.Name{Namespace: "shop", Name: "api"}
	checks := want(freePort(t), 1, loopback...)
	checks[shop] = state.HealthCheck{Port: freePort(t), Local: 0, Addresses: loopback}
	mustSync(t, c, checks)
	for name, check := range checks {
		_, body := ask(t, http.MethodGet, urlOf(check.Port, "/"))
		var got checkAnswer
		if err := json.Unmarshal([]byte(body), &got); err != nil || got.Service.Name != name.Name || got.LocalEndpoints != check.Local {
			t.Errorf("%s: %q, %v", name, body, err)
		}
	}
}
