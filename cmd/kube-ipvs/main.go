// Command kube-ipvs is the Service proxy for Kubernetes nodes that
// load-balances with IPVS. This package only wires the parts together.
package main

import (
	"errors"
	"fmt"
	"os"

	"github.com/kube-ipvs/kube-ipvs/config"
	"github.com/spf13/cobra"
)

// version is set at build time.
var version = "dev"

// Exit statuses.
const (
	exitFailed = 1 // the node or the cluster is not as needed
	exitUsage  = 2 // the command line or the configuration is wrong
)

// usageError is an error of the command line or the configuration.
type usageError struct{ error }

func main() {
	root := command()
	err := root.Execute()
	if err == nil {
		return
	}
	fmt.Fprintf(os.Stderr, "kube-ipvs: %v\n", err)
	var usage usageError
	if errors.As(err, &usage) {
		os.Exit(exitUsage)
	}
	os.Exit(exitFailed)
}

func command() *cobra.Command {
	root := &cobra.Command{
		Use:           "kube-ipvs",
		Short:         "Service proxy for Kubernetes nodes that load-balances with IPVS",
		Version:       version,
		SilenceUsage:  true,
		SilenceErrors: true,
	}
	root.SetVersionTemplate("kube-ipvs {{.Version}}\n")
	root.SetFlagErrorFunc(func(_ *cobra.Command, err error) error {
		return usageError{fmt.Errorf("%w; kube-ipvs --help lists the flags", err)}
	})
	root.AddCommand(runCommand(), listCommand(), syncCommand())

	// Without a subcommand it runs, as kube-proxy does.
	flags := config.AddFlags(root.Flags())
	root.Args = noArguments
	root.RunE = func(c *cobra.Command, _ []string) error { return start(c.Context(), flags) }
	return root
}

func runCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "run",
		Short: "Watch the cluster and keep this node's kernel in step (the default)",
		Example: `  kube-ipvs run --config /var/lib/kube-proxy/config.conf
  kube-ipvs run --kubeconfig /etc/kubernetes/kubelet.conf --cluster-cidr 10.244.0.0/16
  kube-ipvs run --manifests ./services`,
		Args:    noArguments,
		Version: version,
	}
	c.SetVersionTemplate("kube-ipvs {{.Version}}\n")
	flags := config.AddFlags(c.Flags())
	c.RunE = func(c *cobra.Command, _ []string) error { return start(c.Context(), flags) }
	return c
}

func noArguments(c *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	return usageError{fmt.Errorf("unknown command or argument %q for %q; see kube-ipvs --help", args[0], c.CommandPath())}
}
