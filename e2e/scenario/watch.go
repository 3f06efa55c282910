package scenario

import (
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/vishvananda/netlink"
)

// watch knows what a node's kernel held at a mark, and what has happened to it since. Comparing the two ends is not
// enough: an address that was away for a moment is seen through netlink, and a virtual server that was made anew by
// its table, read every now and then, and by its counters.
type watch struct {
	session *session
	node    string
	texts   map[string]string // what a command printed at the mark, by what is watched
	counts  map[string][]uint64

	stop    chan struct{}
	once    sync.Once
	running sync.WaitGroup

	mu     sync.Mutex
	seen   map[string][]string // changes seen between mark and now, by what is watched
	broken error               // why some may have been missed
}

// every is how often a watch reads the kernel's table of virtual servers, which costs no process.
const every = 200 * time.Millisecond

func (s *session) startWatch(ctx context.Context, node string, what []string) (*watch, error) {
	w := &watch{
		session: s, node: node, texts: map[string]string{},
		stop: make(chan struct{}), seen: map[string][]string{},
	}
	if err := w.begin(ctx, what); err != nil {
		w.close()
		return nil, err
	}
	return w, nil
}

func (w *watch) begin(ctx context.Context, what []string) (err error) {
	if slices.Contains(what, watchAddresses) {
		if err := w.watchAddresses(ctx); err != nil {
			return err
		}
	}
	for _, one := range what {
		if w.texts[one], err = w.read(ctx, one); err != nil {
			return err
		}
	}
	if slices.Contains(what, watchServers) {
		if w.counts, err = w.counters(ctx); err != nil {
			return err
		}
		w.running.Go(w.pollServers)
	}
	return nil
}

// close ends the watching.
func (w *watch) close() {
	w.once.Do(func() { close(w.stop) })
	w.running.Wait()
}

// changes lists what has changed since the mark, none if nothing has.
func (w *watch) changes(ctx context.Context, what []string) ([]string, error) {
	var changes []string
	for _, one := range what {
		now, err := w.read(ctx, one)
		if err != nil {
			return nil, err
		}
		changes = append(changes, difference(w.texts[one], now)...)
		seen, err := w.meanwhile(one)
		if err != nil {
			return nil, err
		}
		changes = append(changes, seen...)
	}
	if !slices.Contains(what, watchServers) {
		return changes, nil
	}
	counts, err := w.counters(ctx)
	return append(changes, fallen(w.counts, counts)...), err
}

// meanwhile lists what was seen to change between the mark and now.
func (w *watch) meanwhile(what string) ([]string, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.seen[what]), w.broken
}

func (w *watch) note(what, change string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !slices.Contains(w.seen[what], change) {
		w.seen[what] = append(w.seen[what], change)
	}
}

// read is what a node's kernel holds, as lines in a fixed order and without counters.
func (w *watch) read(ctx context.Context, what string) (string, error) {
	switch what {
	case watchServers:
		lines, err := w.session.virtualServers(ctx, w.node)
		slices.Sort(lines)
		return strings.Join(lines, "\n"), err
	case watchAddresses:
		have, err := w.session.dummies(ctx, w.node)
		if err == nil && have.indexes == nil {
			return "no dummy device", nil
		}
		return strings.Join(have.texts(), "\n"), err
	case watchSets:
		output, err := w.session.output(ctx, w.node, "ipset save")
		return settled(output, true), err
	}
	output, err := w.session.output(ctx, w.node, "iptables-save && ip6tables-save")
	return settled(output, false), err
}

// settled takes from a listing what changes without anybody changing it: comments with the time, counters and the
// rest of a time-out. Only where their order means nothing are the lines sorted.
func settled(output string, sorted bool) string {
	moving := regexp.MustCompile(`\[\d+:\d+\]|^(add .*?) timeout \d+|^(add .*?) packets \d+ bytes \d+`)
	var lines []string
	for line := range strings.Lines(output) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' {
			continue
		}
		lines = append(lines, strings.TrimSpace(moving.ReplaceAllString(line, "$1$2")))
	}
	if sorted {
		slices.Sort(lines)
	}
	return strings.Join(lines, "\n")
}

// difference lists the lines that are gone and those that are new.
func difference(before, after string) []string {
	if before == after {
		return nil
	}
	old, now := strings.Split(before, "\n"), strings.Split(after, "\n")
	var changes []string
	for _, line := range old {
		if line != "" && !slices.Contains(now, line) {
			changes = append(changes, "removed "+line)
		}
	}
	for _, line := range now {
		if line != "" && !slices.Contains(old, line) {
			changes = append(changes, "added "+line)
		}
	}
	if changes == nil {
		changes = append(changes, "the same lines in another order or number")
	}
	return changes
}

// counters reads how many connections, packets and bytes each server has seen.
func (w *watch) counters(ctx context.Context) (map[string][]uint64, error) {
	output, err := w.session.output(ctx, w.node, "ipvsadm -Ln --stats --exact")
	return parseCounters(output), err
}

// parseCounters reads `ipvsadm -Ln --stats --exact`: the last five words of a line are its numbers.
func parseCounters(output string) map[string][]uint64 {
	counts := map[string][]uint64{}
	server := ""
	for line := range strings.Lines(output) {
		words := strings.Fields(line)
		if len(words) < 7 {
			continue
		}
		var numbers []uint64
		for _, word := range words[len(words)-5:] {
			if n, err := strconv.ParseUint(word, 10, 64); err == nil {
				numbers = append(numbers, n)
			}
		}
		if len(numbers) < 5 {
			continue
		}
		name := strings.Join(words[:len(words)-5], " ")
		if words[0] == "->" {
			name = server + " " + name
		} else {
			server = name
		}
		counts[name] = numbers
	}
	return counts
}

// fallen lists the servers whose counters are lower than before, which only a new server's are.
func fallen(before, after map[string][]uint64) []string {
	var changes []string
	for _, server := range slices.Sorted(maps.Keys(before)) {
		now, there := after[server]
		for i, count := range before[server] {
			if there && now[i] < count {
				changes = append(changes, fmt.Sprintf("%s was made anew: its counters fell", server))
				break
			}
		}
	}
	return changes
}

// pollServers compares the kernel's table with that of the mark until the watch is closed.
func (w *watch) pollServers() {
	first, err := w.table()
	if err != nil {
		return // The comparison of the two ends will say so.
	}
	tick := time.NewTicker(every)
	defer tick.Stop()
	for {
		select {
		case <-w.stop:
			return
		case <-tick.C:
		}
		now, err := w.table()
		if err != nil {
			return
		}
		for _, change := range difference(first, now) {
			w.note(watchServers, "meanwhile "+change)
		}
	}
}

// table reads the table of virtual servers from /proc, without the numbers of connections.
func (w *watch) table() (string, error) {
	host, err := w.session.host(w.node)
	if err != nil {
		return "", err
	}
	var text []byte
	err = host.Do(func() (err error) {
		text, err = os.ReadFile("/proc/thread-self/net/ip_vs")
		return err
	})
	return withoutConnections(string(text)), err
}

// withoutConnections leaves the last two columns of real servers out, and names the virtual server with each.
func withoutConnections(text string) string {
	var lines []string
	server := ""
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) < 3 || words[0] == "IP" || words[0] == "Prot" || words[1] == "RemoteAddress:Port":
			continue
		case words[0] == "->" && len(words) == 6:
			words = []string{server, "->", readable(words[1]), words[2], words[3]}
		default:
			words[1] = readable(words[1])
			server = strings.Join(words[:2], " ")
		}
		lines = append(lines, strings.Join(words, " "))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

// readable turns the address and port of a line of /proc/net/ip_vs, which are hexadecimal for IPv4, into the usual
// form. What is none, such as a mark, stays as it is.
func readable(text string) string {
	host, port, ok := strings.Cut(text, ":")
	if strings.HasPrefix(text, "[") {
		host, port, ok = strings.Cut(text, "]:")
	}
	number, err := strconv.ParseUint(port, 16, 16)
	if !ok || err != nil {
		return text
	}
	addr, err := netip.ParseAddr(strings.TrimPrefix(host, "["))
	if raw, hexErr := hex.DecodeString(host); hexErr == nil && len(raw) == 4 {
		addr, err = netip.AddrFrom4([4]byte(raw)), nil
	}
	if err != nil {
		return text
	}
	return netip.AddrPortFrom(addr, uint16(number)).String()
}

// watchAddresses notes every address that leaves or joins a dummy device from now on.
func (w *watch) watchAddresses(ctx context.Context) error {
	host, err := w.session.host(w.node)
	if err != nil {
		return err
	}
	updates, done := make(chan netlink.AddrUpdate, 1024), make(chan struct{})
	options := netlink.AddrSubscribeOptions{ErrorCallback: w.breakOff, ReceiveBufferSize: 1 << 20}
	if err := host.Do(func() error { return netlink.AddrSubscribeWithOptions(updates, done, options) }); err != nil {
		return fmt.Errorf("watch addresses: %w", err)
	}
	atMark, err := w.session.dummies(ctx, w.node)
	w.running.Go(func() {
		<-w.stop
		close(done)
	})
	w.running.Go(func() {
		for u := range updates {
			w.noteAddress(atMark, u)
		}
	})
	return err
}

// breakOff remembers why messages of the kernel may have been lost. After the end of the watch nobody asks.
func (w *watch) breakOff(err error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.broken = errors.Join(w.broken, fmt.Errorf("watch addresses: %w", err))
}

// noteAddress keeps an update that is a change: the kernel also reports an address that was only refreshed.
func (w *watch) noteAddress(atMark dummies, u netlink.AddrUpdate) {
	addr, ok := netip.AddrFromSlice(u.LinkAddress.IP)
	if !ok || !slices.Contains(atMark.indexes, u.LinkIndex) {
		return
	}
	addr = addr.Unmap()
	switch known := slices.Contains(atMark.addrs, addr); {
	case known && !u.NewAddr:
		w.note(watchAddresses, fmt.Sprintf("meanwhile %s was taken away", addr))
	case !known && u.NewAddr:
		w.note(watchAddresses, fmt.Sprintf("meanwhile %s was added", addr))
	}
}
