package world

import (
	"errors"
	"io"
	"net"
	"sync"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab/netns"
)

// forwarder is a port in a host's namespace that leads to an address in the guest's own namespace.
type forwarder struct {
	listener net.Listener
	to       string

	mu     sync.Mutex
	conns  map[net.Conn]bool
	closed bool
	done   sync.WaitGroup
}

func forward(space *netns.Space, from, to string) (*forwarder, error) {
	f := &forwarder{to: to, conns: map[net.Conn]bool{}}
	err := space.Do(func() (err error) {
		f.listener, err = net.Listen("tcp", from)
		return err
	})
	if err != nil {
		return nil, err
	}
	f.done.Add(1)
	go f.accept()
	return f, nil
}

func (f *forwarder) accept() {
	defer f.done.Done()
	for {
		in, err := f.listener.Accept()
		if err != nil {
			return // closed
		}
		f.done.Add(1)
		go func() {
			defer f.done.Done()
			f.join(in)
		}()
	}
}

// join copies both ways until either side ends.
func (f *forwarder) join(in net.Conn) {
	defer in.Close()
	out, err := net.Dial("tcp", f.to)
	if err != nil {
		return // the caller sees a closed connection, as with a server that is away
	}
	defer out.Close()
	if !f.keep(in, out) {
		return
	}
	defer f.forget(in, out)
	ended := make(chan struct{}, 2)
	for _, pair := range [][2]net.Conn{{in, out}, {out, in}} {
		go func() {
			_, _ = io.Copy(pair[0], pair[1]) // how it ends says nothing
			ended <- struct{}{}
		}()
	}
	<-ended
}

func (f *forwarder) keep(conns ...net.Conn) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		f.conns[c] = true
	}
	return !f.closed
}

func (f *forwarder) forget(conns ...net.Conn) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, c := range conns {
		delete(f.conns, c)
	}
}

func (f *forwarder) Close() error {
	err := f.listener.Close()
	f.mu.Lock()
	f.closed = true
	for c := range f.conns {
		err = errors.Join(err, c.Close())
	}
	f.mu.Unlock()
	f.done.Wait()
	return err
}
