package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"

	"go.yaml.in/yaml/v3"
	"golang.org/x/term"

	"github.com/kube-ipvs/kube-ipvs/e2e/lab"
	"github.com/kube-ipvs/kube-ipvs/e2e/lab/world"
	"github.com/kube-ipvs/kube-ipvs/e2e/scenario"
)

// demoJob shows the proxy at work in the standard topology. With a folder it
// shows what becomes of the manifests there.
func demoJob() lab.Job {
	return lab.Job{
		Name: "demo", Summary: "show the proxy at work on a small cluster: demo [FOLDER of manifests]", API: true, Proxy: true,
		Prepare: stageManifests,
		Run: func(ctx context.Context, g *lab.Guest, args []string) error {
			l, err := world.Open(ctx, g, 1)
			if err != nil {
				return err
			}
			defer l.Close()
			w, err := l.NewWorld(ctx, scenario.Options{Name: "demo", Family: scenario.IPv4})
			if w != nil {
				defer w.Close()
			}
			if err != nil {
				return err
			}
			t := &tour{world: w, binary: g.Proxy, out: os.Stdout, colour: args[0] == "colour"}
			if len(args) > 1 {
				return t.own(ctx, args[1:])
			}
			return t.standard(ctx)
		},
	}
}

// stageManifests copies the manifests to where the guest sees them, and says
// whether the terminal takes colours.
func stageManifests(_ context.Context, h *lab.Host, args []string) ([]string, error) {
	staged := []string{"plain"}
	if term.IsTerminal(int(os.Stdout.Fd())) && os.Getenv("NO_COLOR") == "" {
		staged[0] = "colour"
	}
	for _, folder := range args {
		files, err := manifests(folder)
		if err != nil {
			return nil, err
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				return nil, err
			}
			if _, err := documents(text); err != nil {
				return nil, fmt.Errorf("%s: %w", file, err)
			}
			copied := filepath.Join(h.Dir, filepath.Base(file))
			if err := os.WriteFile(copied, text, 0o644); err != nil {
				return nil, err
			}
			staged = append(staged, copied)
		}
	}
	return staged, nil
}

// manifests lists the YAML files of a folder.
func manifests(folder string) ([]string, error) {
	var files []string
	for _, pattern := range []string{"*.yaml", "*.yml"} {
		found, err := filepath.Glob(filepath.Join(folder, pattern))
		if err != nil {
			return nil, err
		}
		files = append(files, found...)
	}
	if len(files) == 0 {
		return nil, fmt.Errorf("folder %s holds no *.yaml or *.yml file", folder)
	}
	slices.Sort(files)
	return files, nil
}

// documents splits a text into its YAML documents.
func documents(text []byte) ([]map[string]any, error) {
	var all []map[string]any
	decoder := yaml.NewDecoder(bytes.NewReader(text))
	for {
		var document map[string]any
		err := decoder.Decode(&document)
		if errors.Is(err, io.EOF) {
			return all, nil
		}
		if err != nil {
			return nil, err
		}
		if document != nil {
			all = append(all, document)
		}
	}
}
