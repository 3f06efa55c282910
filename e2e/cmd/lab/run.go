package main

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
)

// runJob runs a developer's script as root in the guest, with bash.
func runJob() lab.Job {
	return lab.Job{
		Name:    "run",
		Summary: "run a shell script in the guest: run SCRIPT [argument ...]",
		Prepare: func(_ context.Context, h *lab.Host, args []string) ([]string, error) {
			if len(args) == 0 {
				return nil, errors.New("run needs a script")
			}
			text, err := os.ReadFile(args[0])
			if err != nil {
				return nil, err
			}
			script := filepath.Join(h.Dir, filepath.Base(args[0]))
			return append([]string{script}, args[1:]...), os.WriteFile(script, text, 0o755)
		},
		Run: func(ctx context.Context, _ *lab.Guest, args []string) error {
			cmd := exec.CommandContext(ctx, "bash", args...)
			cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
			return cmd.Run()
		},
	}
}
