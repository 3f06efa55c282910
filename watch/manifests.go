package watch

import (
	"context"
	"fmt"
	"time"

	"github.com/fsnotify/fsnotify"
	"go.uber.org/zap"

	"github.com/kube-ipvs/kube-ipvs/state"
)

const (
	// Events are gathered until the folder is quiet for the first, but no
	// longer than the second.
	manifestQuiet = 100 * time.Millisecond
	manifestDelay = time.Second
	// manifestRetry is how often a folder that has gone is looked for.
	manifestRetry = 5 * time.Second
)

// Manifests is the Source that reads the objects in the *.yaml, *.yml and
// *.json files of a folder, not of its subfolders. Saving a file is an update,
// removing it deletes its objects. While a file is bad, what it held before
// stays in force.
type Manifests struct {
	Dir string
	Log *zap.Logger
}

// ReadManifests hands over the objects in a folder once, Synced included. Its
// error names each bad file; the others count. Without a folder nothing is
// handed over.
func ReadManifests(dir string, sink state.Sink, log *zap.Logger) error {
	bad, err := newFolder(dir, log).update(sink)
	if err != nil {
		return err
	}
	sink.Synced()
	return bad
}

// Run implements Source. It fails only if the folder cannot be watched at the
// start; whatever is wrong with a file is logged.
func (m *Manifests) Run(ctx context.Context, sink state.Sink) error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("watching the manifests: %w", err)
	}
	defer watcher.Close()
	if err := watcher.Add(m.Dir); err != nil {
		return fmt.Errorf("watching the manifests in %s: %w", m.Dir, err)
	}
	f := newFolder(m.Dir, m.Log)
	if err := m.update(f, sink); err != nil {
		return err
	}
	sink.Synced()
	for m.wait(ctx, watcher) {
		if err := m.update(f, sink); err != nil {
			m.Log.Error("manifests cannot be read, keeping their objects", zap.Error(err))
		}
	}
	return nil
}

// update logs each bad file once, and again when it is bad in another way.
func (m *Manifests) update(f *folder, sink state.Sink) error {
	bad, err := f.update(sink)
	if bad != nil {
		m.Log.Error("manifest is not in force", zap.String("folder", m.Dir), zap.Error(bad))
	}
	return err
}

// wait returns when something in the folder has changed and the burst of
// changes is over, and false when the context ends.
func (m *Manifests) wait(ctx context.Context, watcher *fsnotify.Watcher) bool {
	var quiet, late <-chan time.Time
	for {
		select {
		case <-ctx.Done():
			return false
		case <-watcher.Events:
			quiet = time.After(manifestQuiet)
			if late == nil {
				late = time.After(manifestDelay)
			}
		case err := <-watcher.Errors:
			m.Log.Warn("lost events about manifests, reading all", zap.Error(err))
			return true
		case <-quiet:
			return m.rewatch(ctx, watcher)
		case <-late:
			return m.rewatch(ctx, watcher)
		}
	}
}

// rewatch makes sure that the folder is watched, which ends when it is removed
// or renamed. It waits for a folder that is gone to come back.
func (m *Manifests) rewatch(ctx context.Context, watcher *fsnotify.Watcher) bool {
	for lost := false; ; lost = true {
		err := watcher.Add(m.Dir)
		if err == nil {
			return true
		}
		if !lost {
			m.Log.Error("the folder of manifests is gone, keeping its objects", zap.String("folder", m.Dir), zap.Error(err))
		}
		if !sleep(ctx, manifestRetry) {
			return false
		}
	}
}
