package ipvs

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// Entry is a virtual server with its real servers, as the kernel holds them.
type Entry struct {
	Server
	Reals []Real
}

// Dump reads the kernel's whole table, in order.
func Dump() ([]Entry, error) {
	k, err := openKernel()
	if err != nil {
		return nil, err
	}
	defer k.handle.Close()
	servers, err := k.Servers()
	if err != nil {
		return nil, fmt.Errorf("list virtual servers: %w", err)
	}
	slices.SortFunc(servers, func(a, b Server) int { return a.Key.Compare(b.Key) })
	table := make([]Entry, 0, len(servers))
	for _, s := range servers {
		reals, err := k.Reals(s.Key)
		if err != nil {
			return nil, fmt.Errorf("list real servers of %s: %w", s.Key, err)
		}
		slices.SortFunc(reals, func(a, b Real) int { return a.At.Compare(b.At) })
		table = append(table, Entry{Server: s, Reals: reals})
	}
	return table, nil
}

// Print writes a table as "ipvsadm -Ln" does, with the names that the two
// functions give as a last column.
func Print(w io.Writer, table []Entry, service func(key string) string, pod func(Real) string) error {
	var b strings.Builder
	b.WriteString("IP Virtual Server" + tableSize() + "\n")
	b.WriteString("Prot LocalAddress:Port Scheduler Flags\n")
	b.WriteString("  -> RemoteAddress:Port           Forward Weight ActiveConn InActConn\n")
	for _, e := range table {
		head := e.line()
		if name := service(e.Key.String()); name != "" {
			head = fmt.Sprintf("%-70s %s", head, name)
		}
		b.WriteString(head + "\n")
		for _, r := range e.Reals {
			fmt.Fprintf(&b, "  -> %-28s %-7s %-6d %-10d %-10d %s\n", r.At, r.forwarding(), r.Weight, r.Active, r.Inactive, note(r, pod(r)))
		}
	}
	_, err := io.WriteString(w, trimLines(b.String()))
	return err
}

// line is the first line of a virtual server.
func (s Server) line() string {
	text := fmt.Sprintf("%-4s %s %s", strings.ToUpper(s.Key.Protocol.String()), netip.AddrPortFrom(s.Key.Addr, s.Key.Port), s.Scheduler)
	if s.Key.Mark != 0 {
		text = fmt.Sprintf("FWM  %d %s", s.Key.Mark, s.Scheduler)
		if s.Key.Family() == state.IPv6 {
			text = fmt.Sprintf("FWM  %d IPv6 %s", s.Key.Mark, s.Scheduler)
		}
	}
	if names := s.flagNames(); names != "" {
		text += " (" + names + ")"
	}
	if s.Flags&state.Persistent != 0 {
		text += " persistent " + strconv.FormatUint(uint64(s.Timeout), 10)
	}
	if s.Flags&state.OnePacket != 0 {
		text += " ops"
	}
	return text
}

// forwarding names the forwarding method (IP_VS_CONN_F_* in
// include/uapi/linux/ip_vs.h).
func (r Real) forwarding() string {
	switch r.Forward {
	case 0:
		return "Masq"
	case 1:
		return "Local"
	case 2:
		return "Tunnel"
	case 3:
		return "Route"
	}
	return strconv.FormatUint(uint64(r.Forward), 10)
}

func note(r Real, pod string) string {
	if r.Weight == 0 {
		return strings.TrimSpace(pod + " draining")
	}
	return pod
}

// tableSize returns what /proc/net/ip_vs says of the connection table.
func tableSize() string {
	text, err := os.ReadFile("/proc/net/ip_vs")
	if err != nil {
		return ""
	}
	first, _, _ := strings.Cut(string(text), "\n")
	return strings.TrimPrefix(first, "IP Virtual Server")
}

func trimLines(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRight(lines[i], " ")
	}
	return strings.Join(lines, "\n")
}
