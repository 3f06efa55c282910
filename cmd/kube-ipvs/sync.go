package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"

	"github.com/spf13/cobra"
)

func syncCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "sync",
		Short: "Have the running proxy compare everything with the kernel now",
		Long: `Have the running proxy read the whole kernel state now and bring it in step.
It prints how many operations that took; 0 means that everything was as wanted.`,
		Args: noArguments,
		RunE: func(c *cobra.Command, _ []string) error {
			var answer syncAnswer
			if err := askProxy(c.Context(), http.MethodPost, "/sync", &answer); err != nil {
				return err
			}
			_, err := fmt.Fprintf(c.OutOrStdout(), "%d operations\n", answer.Operations)
			return err
		},
	}
}

// askProxy asks the running proxy through its local socket.
func askProxy(ctx context.Context, method, path string, answer any) error {
	client := http.Client{Transport: &http.Transport{
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return (&net.Dialer{}).DialContext(ctx, "unix", socketPath)
		},
	}}
	request, err := http.NewRequestWithContext(ctx, method, "http://kube-ipvs"+path, nil)
	if err != nil {
		return err
	}
	response, err := client.Do(request)
	if err != nil {
		return fmt.Errorf("ask the running proxy: %w", err)
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		text, _ := io.ReadAll(io.LimitReader(response.Body, 1<<16))
		return fmt.Errorf("the running proxy says: %s", strings.TrimSpace(string(text)))
	}
	return json.NewDecoder(response.Body).Decode(answer)
}
