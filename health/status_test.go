package health

import (
	"encoding/json"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"
	"time"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// statusTest is a Status with a clock and the answers that it counted.
type statusTest struct {
	*testing.T
	*Status
	now     time.Time
	counted []string
}

func newStatusTest(t *testing.T) *statusTest {
	s := &statusTest{T: t, now: time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)}
	s.Status = NewStatus([]state.Family{state.IPv4, state.IPv6}, time.Minute, func() time.Time { return s.now })
	return s
}

// get returns an answer of the handler.
func (s *statusTest) get(path string) *httptest.ResponseRecorder {
	s.Helper()
	w := httptest.NewRecorder()
	handler := s.Handler(func(path string, code int) { s.counted = append(s.counted, fmt.Sprint(path, " ", code)) })
	handler.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	return w
}

// expect compares the codes of both paths.
func (s *statusTest) expect(healthz, livez int) {
	s.Helper()
	if got := s.get("/healthz").Code; got != healthz {
		s.Errorf("/healthz: %d, want %d", got, healthz)
	}
	if got := s.get("/livez").Code; got != livez {
		s.Errorf("/livez: %d, want %d", got, livez)
	}
}

func TestHealthy(t *testing.T) {
	s := newStatusTest(t)
	s.SetEligible(true)
	t.Log("before the first success")
	s.expect(503, 503)
	s.Queued(s.now)
	s.expect(503, 503)
	s.Succeeded(s.now)
	s.expect(200, 200)

	t.Log("nothing to do, for however long")
	s.now = s.now.Add(24 * time.Hour)
	s.expect(200, 200)

	t.Log("something waits, and then for too long; later changes do not put that off")
	s.Queued(s.now)
	s.now = s.now.Add(59 * time.Second)
	s.expect(200, 200)
	s.Queued(s.now)
	s.now = s.now.Add(time.Second)
	s.expect(503, 503)
	s.Succeeded(s.now)
	s.expect(200, 200)

	t.Log("a failure counts as something that waits")
	s.Failed(s.now)
	s.now = s.now.Add(time.Minute)
	s.expect(503, 503)
	if s.Healthy() {
		t.Error("Healthy is true")
	}
}

// TestEligible: a node on its way out is no target any more (KEP-3836), but the
// proxy on it must not be restarted for that.
func TestEligible(t *testing.T) {
	s := newStatusTest(t)
	s.SetEligible(true)
	s.Succeeded(s.now)
	s.expect(200, 200)
	s.SetEligible(false)
	s.expect(503, 200)
	if !s.Healthy() {
		t.Error("Healthy is false: a Service's health check would say so, too")
	}
	s.SetEligible(true)
	s.expect(200, 200)
	want := []string{"/healthz 200", "/livez 200", "/healthz 503", "/livez 200", "/healthz 200", "/livez 200"}
	if !slices.Equal(s.counted, want) {
		t.Errorf("counted %q, want %q", s.counted, want)
	}
}

func TestStatusBodies(t *testing.T) {
	s := newStatusTest(t)
	s.SetEligible(true)
	s.Succeeded(s.now)
	s.Queued(s.now)
	s.now = s.now.Add(time.Hour)
	const family = `{"lastUpdated":"2026-01-02T03:04:05Z","healthy":false}`
	const rest = `"healthy":false,"status":{"IPv4":` + family + `,"IPv6":` + family + "}}\n"
	for path, want := range map[string]string{
		"/healthz": `{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T04:04:05Z","nodeEligible":true,` + rest,
		"/livez":   `{"lastUpdated":"2026-01-02T03:04:05Z","currentTime":"2026-01-02T04:04:05Z",` + rest,
	} {
		w := s.get(path)
		if got := w.Body.String(); got != want {
			t.Errorf("%s: %s\nwant %s", path, got, want)
		}
		if w.Header().Get("Content-Type") != "application/json" || w.Header().Get("X-Content-Type-Options") != "nosniff" {
			t.Errorf("%s: headers %v", path, w.Header())
		}
	}

	t.Log("while it is healthy, now is the last update")
	s.Succeeded(s.now)
	s.now = s.now.Add(time.Hour)
	var got answer
	if err := json.Unmarshal(s.get("/healthz").Body.Bytes(), &got); err != nil {
		t.Fatal(err)
	}
	if !got.LastUpdated.Equal(s.now) || !got.Healthy || !got.Status["IPv6"].Healthy {
		t.Errorf("got %+v", got)
	}
}
