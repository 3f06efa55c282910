package main

import (
	"context"
	"io"
	"net/http"
	"time"

	"github.com/kube-ipvs/kube-ipvs/ipvs"
	"github.com/kube-ipvs/kube-ipvs/proxy"
	"github.com/spf13/cobra"
)

func listCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "list",
		Short: "Print the kernel's virtual servers with their Services and pods",
		Long: `Print the kernel's virtual servers as "ipvsadm -Ln" does, with a column for
the Service port and the pod. The kernel's table is read itself; the names come
from the running proxy and are left out if none runs.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error { return list(c.Context(), c.OutOrStdout()) },
	}
}

func list(ctx context.Context, out io.Writer) error {
	table, err := ipvs.Dump()
	if err != nil {
		return err
	}
	names, err := askNames(ctx)
	if err != nil {
		names = proxy.Names{}
	}
	return ipvs.Print(out, table, func(key string) string { return names.Servers[key] }, func(r ipvs.Real) string { return names.Pods[r.At.Addr()] })
}

// askNames asks the running proxy whose the virtual servers are.
func askNames(ctx context.Context) (proxy.Names, error) {
	var names proxy.Names
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	return names, askProxy(ctx, http.MethodGet, "/names", &names)
}
