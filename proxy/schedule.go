package proxy

import "time"

// These bound how often everything is read and compared. A pass over a small
// node costs little and so comes often, and somebody's flush is mended within
// seconds; on a large node passes take at most the given share of the time, but
// never come less often than the configured period.
const (
	leastLook  = 3 * time.Second
	lookShare  = 50 // a whole pass may take a fiftieth of the time
	firstRetry = time.Second
	lastRetry  = 30 * time.Second
)

// schedule says when the next pass is due.
type schedule struct {
	period, least time.Duration

	whole    bool      // the next pass compares everything
	looked   time.Time // end of the last whole pass
	cost     time.Duration
	passed   time.Time // end of the last pass
	retry    time.Duration
	retryAt  time.Time // zero unless the last pass failed
	drainsAt time.Time // zero unless real servers drain
}

// wait returns how long to wait at most before the next pass; 0 means that it
// is due. work says that there is something to show to the layers.
func (s *schedule) wait(now time.Time, work bool) time.Duration {
	if soonest := s.passed.Add(s.least); now.Before(soonest) && s.least > 0 {
		return soonest.Sub(now)
	}
	if s.retryAt.IsZero() && s.whole {
		return 0
	}
	if work {
		return 0
	}
	next := s.looked.Add(s.interval())
	if !s.retryAt.IsZero() {
		next = s.retryAt
	}
	if !s.drainsAt.IsZero() && s.drainsAt.Before(next) {
		next = s.drainsAt
	}
	return max(0, next.Sub(now))
}

// interval is the time between two whole passes.
func (s *schedule) interval() time.Duration {
	return min(s.period, max(leastLook, s.cost*lookShare))
}

// due prepares a pass: it tells whether everything is to be compared.
func (s *schedule) due(now time.Time) bool {
	if !s.retryAt.IsZero() {
		return !now.Before(s.retryAt)
	}
	return s.whole || !now.Before(s.looked.Add(s.interval()))
}

// done notes the end of a pass.
func (s *schedule) done(now time.Time, whole, failed bool, took time.Duration) {
	s.passed = now
	if failed {
		s.retry = min(lastRetry, max(firstRetry, s.retry*2))
		if whole || s.retryAt.IsZero() {
			s.retryAt = now.Add(s.retry)
		}
		s.whole = true
		return
	}
	if !whole {
		return
	}
	s.whole, s.retry, s.retryAt = false, 0, time.Time{}
	s.looked, s.cost = now, took
}
