package traffic

import (
	"errors"
	"io"
	"maps"
	"slices"
	"sync"
	"time"
)

// The source ports that a load with EveryPort uses again and again: few enough that each comes back within a
// second at common rates, and above those that the kernel gives out.
const reusedPort, reusedCount = 61000, 32

// LoadOptions say what a load does.
type LoadOptions struct {
	To        Target
	Rate      int  // connections a second
	EveryPort bool // from a small range of source ports, each used again as soon as its connection is closed
}

// LoadSeen is what a load has seen so far.
type LoadSeen struct {
	Answered map[string]int // answers by the host that gave them
	Failed   map[Result]int // connections that got no answer, by what happened
	Times    []time.Duration
}

// Answers is the number of answered connections.
func (s LoadSeen) Answers() int { return len(s.Times) }

// Errors is the number of connections that got no answer.
func (s LoadSeen) Errors() int {
	n := 0
	for _, count := range s.Failed {
		n += count
	}
	return n
}

// Load opens connections at a steady rate, one request each.
type Load struct {
	client  *Client
	options LoadOptions
	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup

	free chan uint16 // the few ports, the one that was closed longest ago first

	mu   sync.Mutex
	seen LoadSeen
}

// StartLoad begins a load, which runs until it is stopped.
func (c *Client) StartLoad(o LoadOptions) *Load {
	l := &Load{
		client: c, options: o, stop: make(chan struct{}), free: make(chan uint16, reusedCount),
		seen: LoadSeen{Answered: map[string]int{}, Failed: map[Result]int{}},
	}
	for i := range reusedCount {
		l.free <- uint16(reusedPort + i)
	}
	l.running.Go(l.run)
	return l
}

func (l *Load) run() {
	tick := time.NewTicker(time.Second / time.Duration(l.options.Rate))
	defer tick.Stop()
	for {
		l.running.Go(l.callOnce)
		select {
		case <-l.stop:
			return
		case <-tick.C:
		}
	}
}

// Seen is what the load has seen up to now.
func (l *Load) Seen() LoadSeen {
	l.mu.Lock()
	defer l.mu.Unlock()
	return LoadSeen{
		Answered: maps.Clone(l.seen.Answered), Failed: maps.Clone(l.seen.Failed), Times: slices.Clone(l.seen.Times),
	}
}

// Stop opens no more connections, waits for those that are under way and returns what the load has seen.
func (l *Load) Stop() LoadSeen {
	l.once.Do(func() { close(l.stop) })
	l.running.Wait()
	return l.Seen()
}

func (l *Load) callOnce() {
	call := l.client.Call
	if l.options.EveryPort {
		call = l.callReusing
	}
	attempt, err := call(l.options.To)
	if errors.Is(err, errStopped) {
		return
	}
	if err != nil {
		attempt.Result = Result(err.Error())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if attempt.Result != OK {
		l.seen.Failed[attempt.Result]++
		return
	}
	l.seen.Answered[attempt.Answer.Host]++
	l.seen.Times = append(l.seen.Times, attempt.Total)
}

// errStopped says that the load was stopped while a call waited for its port.
var errStopped = errors.New("stopped")

// callReusing calls from the next of the few ports, and waits while all are in use.
func (l *Load) callReusing(to Target) (attempt Attempt, err error) {
	for range reusedCount {
		select {
		case <-l.stop:
			return Attempt{}, errStopped
		case port := <-l.free:
			attempt, err = l.callFrom(to, port)
			l.free <- port
		}
		if !portTaken(err) {
			break
		}
	}
	return attempt, err
}

// callFrom calls from one port. The server closes first, since a port in TIME_WAIT on this side could not be used
// again.
func (l *Load) callFrom(to Target, port uint16) (Attempt, error) {
	conn, attempt, err := l.client.dialFrom(to, port)
	if conn == nil {
		return attempt, err
	}
	defer conn.Close()
	attempt = conn.ask(bye)
	if to.Proto != UDP && attempt.Result == OK {
		_, _ = io.Copy(io.Discard, conn.lines) // Ends when the server closes, or with the answer's deadline.
	}
	return attempt, nil
}
