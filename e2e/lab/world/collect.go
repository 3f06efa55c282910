package world

import (
	"context"
	"errors"
	"os"
	"path/filepath"
)

// kernelState are the commands whose output is kept when a file fails.
var kernelState = []struct{ file, command string }{
	{"ipvsadm", "ipvsadm -Sn; echo; ipvsadm -Ln --stats; echo; ipvsadm -Lcn"},
	{"ipset", "ipset save"},
	{"iptables", "iptables-save -c"},
	{"ip6tables", "ip6tables-save -c"},
	{"ip", "ip addr; echo; ip route; ip -6 route; echo; ip neigh"},
	{"conntrack", "conntrack -L; conntrack -L -f ipv6"},
	{"sysctl", "sysctl -a -r '^net.ipv4.(vs|conf|ip_)|^net.netfilter|^net.ipv6.conf' 2>&1"},
	{"ports", "ss -anp 2>&1"},
}

// Collect writes one file for each node and kind of state, and the proxies' logs and configurations.
func (w *world) Collect(ctx context.Context, dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	var errs []error
	for name, p := range w.proxies {
		for _, path := range []string{p.logFile(), p.configFile()} {
			errs = append(errs, copyInto(dir, path))
		}
		for _, s := range kernelState {
			output, _, err := w.Host(name).Command(ctx, s.command)
			if err != nil {
				output += "\n" + err.Error() + "\n"
			}
			errs = append(errs, os.WriteFile(filepath.Join(dir, name+"-"+s.file+".txt"), []byte(output), 0o644))
		}
	}
	return errors.Join(errs...)
}

// copyInto copies a file that may not exist.
func copyInto(dir, path string) error {
	data, err := os.ReadFile(path)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, filepath.Base(path)), data, 0o644)
}
