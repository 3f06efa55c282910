package scenario

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
)

// entry is one line of `ipvsadm -Sn`: a virtual server, or one of its real servers.
type entry struct {
	real              bool   // a real server
	service, address  string // -t, -u, --sctp-service or -f, and what follows
	ipv6              bool   // of a firewall mark
	scheduler         string
	persist, netmask  string
	engine            string
	onePacket         bool
	flags             []string
	realServer        string
	forward           string
	weight            string
	upper, lower, tun string
}

// normalize brings a line into the one form in which lines are compared: long options as short ones, options in
// ipvsadm's own order, and none whose value is the default.
func normalize(line string) (string, error) {
	words := strings.Fields(line)
	if len(words) == 0 {
		return "", fmt.Errorf("the line is empty")
	}
	e := entry{forward: "-g", weight: "1", scheduler: "wlc"}
	switch words[0] {
	case "-A", "--add-service":
	case "-a", "--add-server":
		e.real = true
	default:
		return "", fmt.Errorf("it begins with %q; write -A for a virtual server or -a for a real server", words[0])
	}
	if err := e.options(words[1:]); err != nil {
		return "", err
	}
	return e.String(), e.complete()
}

// options reads all words after the first.
func (e *entry) options(words []string) error {
	for len(words) > 0 {
		option := words[0]
		used, err := e.option(option, words[1:])
		if err != nil {
			return err
		}
		words = words[1+used:]
	}
	return nil
}

// option reads one option and returns how many words after it belong to it.
func (e *entry) option(option string, rest []string) (int, error) {
	if handled := e.bare(option); handled {
		return 0, nil
	}
	if option == "-p" || option == "--persistent" {
		e.persist = "300" // The default of ipvsadm(8) for the option without a value.
		if len(rest) > 0 && !strings.HasPrefix(rest[0], "-") {
			e.persist = rest[0]
			return 1, nil
		}
		return 0, nil
	}
	into := e.valued(option)
	if into == nil {
		return 0, fmt.Errorf("it has the unknown option %q", option)
	}
	if len(rest) == 0 {
		return 0, fmt.Errorf("%s lacks its value", option)
	}
	return 1, into(rest[0])
}

// bare handles the options without a value.
func (e *entry) bare(option string) bool {
	switch option {
	case "-m", "--masquerading":
		e.forward = "-m"
	case "-g", "--gatewaying":
		e.forward = "-g"
	case "-i", "--ipip":
		e.forward = "-i"
	case "-o", "--ops":
		e.onePacket = true
	case "-6", "--ipv6":
		e.ipv6 = true
	default:
		return false
	}
	return true
}

// valued returns what takes the value of an option, nil for an unknown one.
func (e *entry) valued(option string) func(string) error {
	set := func(into *string) func(string) error {
		return func(value string) error { *into = value; return nil }
	}
	at := func(kind string) func(string) error {
		return func(value string) (err error) {
			e.service = kind
			e.address, err = canonical(value)
			return err
		}
	}
	switch option {
	case "-t", "--tcp-service":
		return at("-t")
	case "-u", "--udp-service":
		return at("-u")
	case "--sctp-service":
		return at("--sctp-service")
	case "-f", "--fwmark-service":
		return func(value string) error { e.service, e.address = "-f", value; return nil }
	case "-r", "--real-server":
		return func(value string) (err error) { e.realServer, err = canonical(value); return err }
	case "-s", "--scheduler":
		return set(&e.scheduler)
	case "-M", "--netmask":
		return set(&e.netmask)
	case "--pe":
		return set(&e.engine)
	case "-b", "--sched-flags":
		return func(value string) error { e.flags = strings.Split(value, ","); return nil }
	case "-w", "--weight":
		return set(&e.weight)
	case "-x", "--u-threshold":
		return set(&e.upper)
	case "-y", "--l-threshold":
		return set(&e.lower)
	case "--tun-type":
		return set(&e.tun)
	}
	return nil
}

// canonical is an address and port in the one form.
func canonical(text string) (string, error) {
	at, err := netip.ParseAddrPort(text)
	if err != nil {
		return "", fmt.Errorf("%q is no address with a port, such as 10.96.0.101:80 or [fd00:96::101]:80", text)
	}
	return at.String(), nil
}

// complete says what a line lacks.
func (e *entry) complete() error {
	switch {
	case e.service == "":
		return fmt.Errorf("it names no virtual server; write -t, -u, --sctp-service or -f and what follows")
	case e.real && e.realServer == "":
		return fmt.Errorf("it names no real server; write -r 10.244.1.11:8080")
	case !e.real && e.realServer != "":
		return fmt.Errorf("it adds a virtual server but names a real server; begin it with -a")
	}
	return nil
}

func (e *entry) String() string {
	var b strings.Builder
	add := func(option, value, usual string) {
		if value != usual && value != "" {
			fmt.Fprintf(&b, " %s %s", option, value)
		}
	}
	b.WriteString(map[bool]string{false: "-A", true: "-a"}[e.real])
	add(e.service, e.address, "")
	if e.ipv6 {
		b.WriteString(" -6")
	}
	if e.real {
		add("-r", e.realServer, "")
		b.WriteString(" " + e.forward)
		add("-w", e.weight, "")
		add("-x", e.upper, "0")
		add("-y", e.lower, "0")
		add("--tun-type", e.tun, "ipip")
		return b.String()
	}
	add("-s", e.scheduler, "")
	add("-p", e.persist, "")
	if e.netmask != "128" {
		add("-M", e.netmask, "255.255.255.255")
	}
	add("--pe", e.engine, "")
	if e.onePacket {
		b.WriteString(" -o")
	}
	add("-b", strings.Join(e.namedFlags(), ","), "")
	return b.String()
}

// namedFlags gives the scheduler flags the names that ipvsadm prints for the schedulers that have some.
func (e *entry) namedFlags() []string {
	flags := slices.Clone(e.flags)
	if e.scheduler == "sh" || e.scheduler == "mh" {
		for i, f := range flags {
			switch f {
			case "flag-1":
				flags[i] = e.scheduler + "-fallback"
			case "flag-2":
				flags[i] = e.scheduler + "-port"
			}
		}
	}
	slices.Sort(flags)
	return flags
}
