package traffic

import (
	"fmt"
	"net/netip"
	"strconv"
	"strings"
)

// Answer is what an echo server says: who was reached, and who the caller looked like from there.
type Answer struct {
	Host   string
	Client netip.AddrPort
}

// String is the line on the wire, without its end.
func (a Answer) String() string {
	return fmt.Sprintf("%s %s %d", a.Host, a.Client.Addr(), a.Client.Port())
}

// ParseAnswer reads one line of an echo server.
func ParseAnswer(line string) (Answer, error) {
	words := strings.Fields(line)
	if len(words) != 3 {
		return Answer{}, fmt.Errorf("answer %q is not of the form HOST ADDRESS PORT", line)
	}
	addr, err := netip.ParseAddr(words[1])
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", line, err)
	}
	port, err := strconv.ParseUint(words[2], 10, 16)
	if err != nil {
		return Answer{}, fmt.Errorf("answer %q: %w", line, err)
	}
	return Answer{Host: words[0], Client: netip.AddrPortFrom(addr, uint16(port))}, nil
}
