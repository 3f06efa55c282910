package scenario

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// tries is a check that takes its outcomes from a function of the time since the step began.
type tries struct {
	begun   time.Time
	outcome func(time.Duration) error
	made    int
}

func (c *tries) try(context.Context, *session) error {
	c.made++
	return c.outcome(time.Since(c.begun))
}

// from is a check that holds from a time on.
func from(d time.Duration) func(time.Duration) error {
	return func(now time.Duration) error {
		if now < d {
			return failf("too early")
		}
		return nil
	}
}

// until is a check that holds until a time.
func until(d time.Duration) func(time.Duration) error {
	return func(now time.Duration) error {
		if now > d {
			return failf("too late")
		}
		return nil
	}
}

func TestStepTiming(t *testing.T) {
	broken := errors.New("the lab broke")
	for _, test := range []struct {
		name    string
		timing  timing
		slow    float64
		outcome func(time.Duration) error
		want    string        // in the error, empty for none
		atLeast time.Duration // that the step takes
		atMost  time.Duration
	}{
		{"holds at once", timing{within: patience}, 1, from(0), "", 0, 0},
		{"holds in time", timing{within: patience}, 1, from(3 * time.Second), "", 3 * time.Second, 3200 * time.Millisecond},
		{"holds too late", timing{within: patience}, 1, from(6 * time.Second), "too early", patience, 5200 * time.Millisecond},
		{"holds in time on a slow machine", timing{within: patience}, 2, from(6 * time.Second), "", 6 * time.Second, 6200 * time.Millisecond},
		{"for: holds all the time", timing{lasting: 3 * time.Second}, 1, from(0), "", 3 * time.Second, 3200 * time.Millisecond},
		{"for: must hold at once", timing{lasting: 3 * time.Second}, 1, from(time.Second), "too early", 0, 0},
		{"for: stops to hold", timing{lasting: 3 * time.Second}, 1, until(2 * time.Second), "held for 2", 2 * time.Second, 2200 * time.Millisecond},
		{"for: stops to hold only on a slow machine", timing{lasting: 3 * time.Second}, 3, until(8 * time.Second), "held for 8", 8 * time.Second, 8200 * time.Millisecond},
		{"within and for", timing{within: 2 * time.Second, lasting: 3 * time.Second}, 1, from(time.Second), "", 4 * time.Second, 4200 * time.Millisecond},
		{"within and for: holds too late", timing{within: 2 * time.Second, lasting: 3 * time.Second}, 1, from(4 * time.Second), "too early", 2 * time.Second, 2200 * time.Millisecond},
		{"not tried again", timing{within: patience}, 1, func(time.Duration) error { return finally(failf("gone")) }, "gone", 0, 0},
		{"the lab breaks", timing{within: patience}, 1, func(time.Duration) error { return broken }, "the lab broke", 0, 0},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begun := time.Now()
				c := &tries{begun: begun, outcome: test.outcome}
				err := step{check: c, timing: test.timing}.run(t.Context(), newSession(nil, IPv4, test.slow))
				took := time.Since(begun)
				if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
					t.Errorf("want error %q, have %v", test.want, err)
				}
				if took < test.atLeast || took > test.atMost {
					t.Errorf("took %s, want %s to %s", took, test.atLeast, test.atMost)
				}
				if isFailure(err) != (test.want != "" && !errors.Is(err, broken)) {
					t.Errorf("%v: wrongly taken for a fault of the proxy or of the lab", err)
				}
			})
		})
	}
}

func TestWaitIsSlowedAndInterrupted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun := time.Now()
		if err := wait(2*time.Second).do(t.Context(), newSession(nil, IPv4, 3)); err != nil || time.Since(begun) != 6*time.Second {
			t.Errorf("waited %s, %v", time.Since(begun), err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := wait(time.Hour).do(ctx, newSession(nil, IPv4, 1)); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("have %v", err)
		}
	})
}
