package traffic

import (
	"bufio"
	"errors"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// State is what a held connection is found to be.
type State string

// The states of a held connection.
const (
	Alive  State = "alive"
	Closed State = "closed" // by the other side, or reset; UDP: refused
	Silent State = "silent" // no answer within Patience
)

// Held is a connection that stays open.
type Held struct {
	mu     sync.Mutex
	call   *call
	closed bool
}

// Hold opens a connection and keeps it, from a source port or, if that is 0, from a new one. UDP has no connection
// to open, so one datagram is sent and answered. Held is nil if the attempt did not succeed.
func (c *Client) Hold(to Target, port uint16) (*Held, Attempt, error) {
	conn, attempt, err := c.dial(to, port)
	if conn == nil {
		return nil, attempt, err
	}
	conn.Result = OK
	if to.Proto == UDP {
		if attempt := conn.ask("hello"); attempt.Result != OK {
			return nil, attempt, conn.Close()
		}
	}
	return &Held{call: conn}, conn.Attempt, nil
}

// Say sends a line on the connection and tells what came back. A connection that was seen closed stays so.
func (h *Held) Say() (State, Answer) {
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.closed || h.drain() != nil {
		h.closed = true
		return Closed, Answer{}
	}
	text, err := h.call.exchange("hello")
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return Silent, Answer{}
	case err != nil:
		h.closed = h.call.proto != UDP
		return Closed, Answer{}
	}
	answer, err := ParseAnswer(text)
	if err != nil {
		return Silent, Answer{}
	}
	return Alive, answer
}

// drain reads what came late, so that it is not taken for the next answer. Its error says the connection has ended.
func (h *Held) drain() error {
	buffer := make([]byte, 2048)
	for {
		var n int
		err := h.call.control(func(fd int) (err error) {
			n, err = unix.Read(fd, buffer)
			return err
		})
		switch {
		case errors.Is(err, unix.EAGAIN):
			h.call.lines = bufio.NewReader(h.call.socket)
			return nil
		case h.call.proto == UDP && (err == nil || isICMP(err)):
			continue
		case err != nil:
			return err
		case n == 0:
			return io.EOF
		}
	}
}

// Close closes the connection.
func (h *Held) Close() error {
	// A Say that waits for an answer is cut short.
	_ = h.call.SetDeadline(time.Now())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.closed = true
	return h.call.Close()
}
