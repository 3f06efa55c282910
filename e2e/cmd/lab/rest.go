package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// restTries is how often a proxy may find something to do before it must find
// nothing: what a scenario did last may still be on its way, and real servers
// may have finished draining.
const restTries = 4

// atRest proves that a second sync does nothing: each node's proxy is told to
// compare everything with the kernel and must find it as wanted. A proxy that
// a scenario has stopped is left out.
func atRest(ctx context.Context, w scenario.World, binary string) error {
	for _, node := range []string{"node1", "node2"} {
		if err := nodeAtRest(ctx, w.Host(node), binary); err != nil {
			return fmt.Errorf("%s: %w", node, err)
		}
	}
	return nil
}

func nodeAtRest(ctx context.Context, node scenario.Host, binary string) error {
	var last string
	for range restTries {
		output, exit, err := node.Command(ctx, binary+" sync")
		if err != nil {
			return err
		}
		last = strings.TrimSpace(output)
		switch {
		case exit == 0 && last == "0 operations":
			return nil
		case strings.Contains(last, "connection refused"), strings.Contains(last, "no such file"):
			return nil
		}
		select {
		case <-ctx.Done():
			return errors.New("interrupted")
		case <-time.After(time.Second):
		}
	}
	return fmt.Errorf("a sync of what was in step already said %q, want no operation", last)
}
