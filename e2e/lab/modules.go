package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// modules are loaded at boot, all in one go. Whatever else is needed the kernel loads by itself.
var modules = strings.Fields(`
	dummy veth bridge br_netfilter vxlan virtio_net
	ip_vs ip_vs_rr ip_vs_wrr ip_vs_lc ip_vs_wlc ip_vs_lblc ip_vs_lblcr ip_vs_sh ip_vs_dh ip_vs_mh ip_vs_sed ip_vs_nq
	ip_vs_fo ip_vs_ovf
	ip_set ip_set_bitmap_ip ip_set_bitmap_port ip_set_hash_ip ip_set_hash_ipport ip_set_hash_ipportip
	ip_set_hash_ipportnet ip_set_hash_ipmark ip_set_hash_mac ip_set_hash_net ip_set_hash_netiface ip_set_hash_netnet
	ip_set_hash_netport ip_set_hash_netportnet ip_set_list_set
	iptable_filter iptable_nat iptable_mangle iptable_raw ip6table_filter ip6table_nat ip6table_mangle ip6table_raw
	xt_comment xt_set xt_mark xt_connmark xt_nat xt_MASQUERADE xt_REDIRECT xt_CT xt_conntrack xt_statistic xt_addrtype
	xt_recent xt_ipvs xt_tcpudp xt_sctp xt_multiport xt_physdev xt_limit xt_LOG ipt_REJECT ip6t_REJECT
	nf_conntrack nf_conntrack_netlink nf_nat sctp tcp_diag udp_diag inet_diag nf_tables nft_compat
`)

// loadModules loads the modules and tells the kernel how to find others.
func loadModules(kind kind, dir string) error {
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return err
	}
	args := append(kind.modules(dir), "-S", unix.ByteSliceToString(uname.Release[:]))
	modprobe, err := writeModprobe(dir, args)
	if err != nil {
		return err
	}
	out, err := exec.Command(modprobe, append([]string{"-a", "-q"}, modules...)...).CombinedOutput()
	if err != nil {
		// A module may be built in or missing in a kernel; whoever needs it will say so.
		fmt.Fprintf(os.Stderr, "lab: modprobe: %v: %s\n", err, strings.TrimSpace(string(out)))
	}
	return nil
}

// writeModprobe writes the modprobe that knows where the guest kernel's modules are. The kernel calls it by its path,
// programs find it on their PATH.
func writeModprobe(dir string, args []string) (string, error) {
	script := filepath.Join(dir, "bin", "modprobe")
	if err := os.MkdirAll(filepath.Dir(script), 0o755); err != nil {
		return "", err
	}
	text := "#!/bin/sh\nexec /sbin/modprobe " + strings.Join(args, " ") + " \"$@\"\n"
	if err := os.WriteFile(script, []byte(text), 0o755); err != nil {
		return "", err
	}
	return script, os.WriteFile("/proc/sys/kernel/modprobe", []byte(script), 0o644)
}
