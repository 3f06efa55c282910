package proxy

import "time"

// Two things tell what somebody else did to our state. A look costs the same
// whatever the node's size and comes often: it notices flushed sets, flushed
// rules and a cleared IPVS table. A whole pass reads and compares everything; a
// small node affords one as often, on a large one passes take at most the given
// share of the time, but come no later than the configured period.
const (
	lookEvery  = 3 * time.Second
	wholeShare = 20 // a whole pass may take a twentieth of the time
	firstRetry = time.Second
	lastRetry  = 5 * time.Second
)

// schedule says when the next pass is due.
type schedule struct {
	period, least time.Duration

	whole    bool      // the next pass compares everything
	compared time.Time // end of the last whole pass
	looked   time.Time // the last look
	cost     time.Duration
	passed   time.Time // end of the last pass
	retry    time.Duration
	retryAt  time.Time // zero unless a pass failed and no whole one has succeeded since
	broken   bool      // nothing but the retry is to be tried
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
	if s.broken {
		return max(0, s.retryAt.Sub(now))
	}
	if work {
		return 0
	}
	next := s.compared.Add(s.interval())
	if !s.retryAt.IsZero() {
		next = s.retryAt
	} else if look := s.looked.Add(lookEvery); look.Before(next) {
		next = look
	}
	if !s.drainsAt.IsZero() && s.drainsAt.Before(next) {
		next = s.drainsAt
	}
	return max(0, next.Sub(now))
}

// drained tells whether it is time to look at draining real servers again.
func (s *schedule) drained(now time.Time) bool {
	return !s.drainsAt.IsZero() && !now.Before(s.drainsAt)
}

// interval is the time between two whole passes.
func (s *schedule) interval() time.Duration {
	return min(s.period, max(lookEvery, s.cost*wholeShare))
}

// look tells whether a look is due. There is none while a failure waits for its
// retry, which compares everything.
func (s *schedule) look(now time.Time) bool {
	if !s.retryAt.IsZero() || s.whole || now.Before(s.looked.Add(lookEvery)) {
		return false
	}
	s.looked = now
	return true
}

// due prepares a pass: it tells whether everything is to be compared.
func (s *schedule) due(now time.Time) bool {
	if !s.retryAt.IsZero() {
		return !now.Before(s.retryAt)
	}
	return s.whole || !now.Before(s.compared.Add(s.interval()))
}

// done notes the end of a pass.
func (s *schedule) done(now time.Time, whole, failed, broken bool, took time.Duration) {
	s.passed, s.broken = now, broken
	if failed {
		if whole || s.retryAt.IsZero() {
			// What fails for some keys may do so for long, so its retries cost no
			// larger a share of the time than whole passes do.
			last := lastRetry
			if !broken {
				last = max(last, s.interval())
			}
			s.retry = min(last, max(firstRetry, s.retry*2))
			s.retryAt = now.Add(s.retry)
		}
		s.whole = true
		return
	}
	if !whole {
		return
	}
	s.whole, s.retry, s.retryAt = false, 0, time.Time{}
	s.compared, s.looked, s.cost = now, now, took
}
