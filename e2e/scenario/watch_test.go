package scenario

import (
	"context"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

func TestSettled(t *testing.T) {
	rules := settled("# Generated on Monday\n*nat\n:INPUT ACCEPT [12:345]\n[5:300] -A INPUT -j ACCEPT\nCOMMIT\n", false)
	if rules != "*nat\n:INPUT ACCEPT\n-A INPUT -j ACCEPT\nCOMMIT" {
		t.Errorf("rules: %q", rules)
	}
	sets := settled("create x hash:ip timeout 9\nadd x 2.2.2.2 timeout 7\nadd x 1.1.1.1 packets 3 bytes 4\n", true)
	if sets != "add x 1.1.1.1\nadd x 2.2.2.2\ncreate x hash:ip timeout 9" {
		t.Errorf("sets: %q", sets)
	}
}

func TestCounters(t *testing.T) {
	const stats = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port               Conns   InPkts  OutPkts  InBytes OutBytes
  -> RemoteAddress:Port
TCP  10.0.0.1:80                         4        3        2        1        5
  -> 10.1.0.1:80                         1        1        1        1        1
UDP  10.0.0.1:80                         0        0        0        0        0
  -> 10.1.0.1:80                         2        2        2        2        2
FWM  8 IPv6                              7        7        7        7        7
`
	before := parseCounters(stats)
	if len(before) != 5 || !slices.Equal(before["UDP 10.0.0.1:80 -> 10.1.0.1:80"], []uint64{2, 2, 2, 2, 2}) {
		t.Fatalf("have %v", before)
	}
	grown := parseCounters(strings.ReplaceAll(stats, " 7 ", " 9 "))
	if changes := fallen(before, grown); changes != nil {
		t.Errorf("counters that grew: have %v", changes)
	}
	anew := parseCounters(strings.Replace(stats, " 4 ", " 0 ", 1))
	if changes := fallen(before, anew); len(changes) != 1 || !strings.Contains(changes[0], "TCP 10.0.0.1:80 was made anew") {
		t.Errorf("counters that fell: have %v", changes)
	}
}

func TestTableWithoutConnections(t *testing.T) {
	const proc = `IP Virtual Server version 1.2.1 (size=4096)
Prot LocalAddress:Port Scheduler Flags
  -> RemoteAddress:Port Forward Weight ActiveConn InActConn
TCP  0A000001:0050 rr  
  -> 0A010002:0050      Masq    0      7          3         
TCP  [fd00:0000:0000:0000:0000:0000:0000:0001]:0054 rr persistent 30000 80000000
FWM  00000007 rr 
`
	const want = "FWM 00000007 rr\nTCP 10.0.0.1:80 -> 10.1.0.2:80 Masq 0\nTCP 10.0.0.1:80 rr\nTCP [fd00::1]:84 rr persistent 30000 80000000"
	if have := withoutConnections(proc); have != want {
		t.Errorf("want %q, have %q", want, have)
	}
}

func TestDifference(t *testing.T) {
	if have := difference("a\nb", "a\nb"); have != nil {
		t.Errorf("same: have %v", have)
	}
	if have := difference("a\nb", "b\nc"); !slices.Equal(have, []string{"removed a", "added c"}) {
		t.Errorf("have %v", have)
	}
	if have := difference("a\nb", "b\na"); len(have) != 1 {
		t.Errorf("another order: have %v", have)
	}
}

// TestUnchangedSeesWhatWasPutBack takes an address away and gives it back between the mark and the check. The
// loopback device plays the dummy one.
func TestUnchangedSeesWhatWasPutBack(t *testing.T) {
	for name, change := range map[string]bool{"untouched": false, "taken away and given back": true} {
		t.Run(name, func(t *testing.T) {
			w := networked(t)
			w.command = listing
			f, err := Parse("x.yaml", []byte(whole("- mark: m\n- unchanged: {on: node1, what: [addresses], since: m}")))
			if err != nil {
				t.Fatal(err)
			}
			s := newSession(w, IPv4, 1)
			defer s.close()
			steps := f.scripts[IPv4].steps
			if err := steps[0].run(t.Context(), s); err != nil {
				t.Fatal(err)
			}
			if !change {
				if err := steps[1].run(t.Context(), s); err != nil {
					t.Error(err)
				}
				return
			}
			putBack(t, w, netip.MustParsePrefix("127.0.0.1/8"))
			awaitFailure(t, steps[1], s, "meanwhile 127.0.0.1 was taken away")
		})
	}
}

// listing is what ip prints of the loopback device.
func listing(string, string) (string, int, error) {
	return "1: lo    inet 127.0.0.1/8 scope host lo\n1: lo: <LOOPBACK,UP>\n", 0, nil
}

func putBack(t *testing.T, w *fakeWorld, address netip.Prefix) {
	t.Helper()
	err := w.network.Do(func() error {
		h, err := netlink.NewHandle(unix.NETLINK_ROUTE)
		if err != nil {
			return err
		}
		defer h.Close()
		lo, err := h.LinkByName("lo")
		if err != nil {
			return err
		}
		addr, err := netlink.ParseAddr(address.String())
		if err != nil {
			return err
		}
		if err := h.AddrDel(lo, addr); err != nil {
			return err
		}
		return h.AddrAdd(lo, addr)
	})
	if err != nil {
		t.Fatal(err)
	}
}

// awaitFailure tries a check until it fails as wanted, since netlink tells of a change a moment after it.
func awaitFailure(t *testing.T, st step, s *session, want string) {
	t.Helper()
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		err := st.check.try(t.Context(), s)
		if err != nil && isFailure(err) && strings.Contains(err.Error(), want) {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("want %q, have %v", want, err)
		}
	}
}

func TestUnchangedComparesTexts(t *testing.T) {
	for what, line := range map[string]string{
		watchSets: "ipset save", watchRules: "iptables-save && ip6tables-save", watchServers: "ipvsadm -Sn",
	} {
		var mu sync.Mutex
		now := "-A -t 10.0.0.1:80 -s rr\n"
		w := &fakeWorld{command: func(_, asked string) (string, int, error) {
			mu.Lock()
			defer mu.Unlock()
			if asked == line {
				return now, 0, nil
			}
			return "", 0, nil
		}}
		f, err := Parse("x.yaml", []byte(whole("- mark: m\n- unchanged: {on: node2, what: ["+what+"], since: m}")))
		if err != nil {
			t.Fatal(err)
		}
		s := newSession(w, IPv4, 1)
		mark, check := f.scripts[IPv4].steps[0], f.scripts[IPv4].steps[1]
		if err := mark.run(context.Background(), s); err != nil {
			t.Fatal(err)
		}
		want(t, what+" untouched", "", check.run(context.Background(), s))
		mu.Lock()
		now = "-A -t 10.0.0.2:80 -s rr\n"
		mu.Unlock()
		want(t, what+" changed", "removed -A -t 10.0.0.1:80 -s rr; added -A -t 10.0.0.2:80 -s rr", check.run(context.Background(), s))
		if err := s.close(); err != nil {
			t.Error(err)
		}
	}
}
