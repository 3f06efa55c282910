package lab

import "testing"

func TestResultsCountATestOnce(t *testing.T) {
	r := Results{"vip.A": Skip, "vip.B": Pass, "vip.C": Fail}
	r.Add(Results{"vip.A": Pass, "vip.B": Pass, "vip.C": Pass, "vip.D": Skip})
	if got, want := r.String(), "2 passed, 1 failed, 1 skipped"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
	r.Add(Results{"vip.B": Fail})
	if got, want := r.String(), "1 passed, 2 failed, 1 skipped"; got != want {
		t.Errorf("a later failure: got %q, want %q", got, want)
	}
}

func TestResultsOK(t *testing.T) {
	for _, c := range []struct {
		name string
		r    Results
		want bool
	}{
		{"nothing ran", Results{}, false},
		{"all skipped", Results{"a": Skip}, false},
		{"passed", Results{"a": Pass, "b": Skip}, true},
		{"one failed", Results{"a": Pass, "b": Fail}, false},
	} {
		if got := c.r.OK(); got != c.want {
			t.Errorf("%s: got %v, want %v", c.name, got, c.want)
		}
	}
}
