package watch

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"go.uber.org/zap"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/kube-ipvs/kube-ipvs/state"
)

// objectKey identifies an object of a folder.
type objectKey struct {
	kind string
	state.Name
}

func (k objectKey) String() string {
	if k.Namespace == "" {
		return k.kind + " " + k.Name.Name
	}
	return k.kind + " " + k.Name.String()
}

// folder is a folder of manifests and what it has handed over.
type folder struct {
	dir  string
	log  *zap.Logger
	file map[string]*file
	// sent are the converted objects that the sink has.
	sent map[objectKey]any
}

// file is what is known of one file.
type file struct {
	data []byte // as last read
	// read is what the data holds, good what is in force: the same, or what
	// the file held when it was last right.
	read, good manifest
	err        error
}

func newFolder(dir string, log *zap.Logger) *folder {
	return &folder{dir: dir, log: log, file: map[string]*file{}, sent: map[objectKey]any{}}
}

// update reads the folder and hands over what has changed. It returns what is
// wrong with files that have become bad in another way than before, and an
// error, with nothing handed over, if the folder cannot be read.
func (f *folder) update(sink state.Sink) (bad, err error) {
	before := map[string]string{}
	for name, file := range f.file {
		before[name] = text(file.err)
	}
	if err := f.read(); err != nil {
		return nil, err
	}
	f.hand(sink, f.resolve())

	var errs []error
	for _, name := range slices.Sorted(maps.Keys(f.file)) {
		if err := f.file[name].err; err != nil && text(err) != before[name] {
			errs = append(errs, err)
		}
	}
	return errors.Join(errs...), nil
}

func text(err error) string {
	if err == nil {
		return ""
	}
	return err.Error()
}

// read parses the files that have changed and forgets those that are gone.
func (f *folder) read() error {
	entries, err := os.ReadDir(f.dir)
	if err != nil {
		return fmt.Errorf("reading the manifests: %w", err)
	}
	present := map[string]bool{}
	for _, e := range entries {
		if !isManifest(e.Name()) {
			continue
		}
		path := filepath.Join(f.dir, e.Name())
		data, err := readRegular(path)
		if errors.Is(err, fs.ErrNotExist) {
			continue // removed since, or a link that leads nowhere
		}
		present[path] = true
		f.take(path, data, err)
	}
	maps.DeleteFunc(f.file, func(path string, _ *file) bool { return !present[path] })
	return nil
}

// readRegular reads a file, and never waits as a pipe would make it.
func readRegular(path string) ([]byte, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("%s is no regular file", path)
	}
	return os.ReadFile(path)
}

// isManifest leaves out hidden files: those are editors' copies and locks.
func isManifest(name string) bool {
	switch filepath.Ext(name) {
	case ".yaml", ".yml", ".json":
		return !strings.HasPrefix(name, ".")
	}
	return false
}

func (f *folder) take(path string, data []byte, err error) {
	known := f.file[path]
	if known == nil {
		known = &file{}
		f.file[path] = known
	}
	if err != nil {
		known.data, known.err = nil, err
		return
	}
	if known.data != nil && bytes.Equal(known.data, data) {
		return
	}
	known.data = data
	known.read, err = parseManifest(data)
	known.err = nil
	if err != nil {
		known.err = fmt.Errorf("%s: %w", path, err)
		return
	}
	if len(known.read.ignored) > 0 {
		f.log.Info("ignoring objects that a proxy does not read", zap.String("file", path), zap.Strings("objects", known.read.ignored))
	}
}

// conflict says that an object stands in two files. It ends with the file that
// is changed so that the two no longer disagree.
type conflict struct{ error }

// resolve decides which content of each file is in force and returns the
// objects. Where two files hold one object the file that has been in force
// with it keeps it, and the other is bad.
func (f *folder) resolve() map[objectKey]placed {
	all, owner := map[objectKey]placed{}, map[objectKey]string{}
	for _, path := range f.order() {
		file := f.file[path]
		if c := (conflict{}); errors.As(file.err, &c) {
			file.err = nil
		}
		if file.err == nil {
			file.err = f.conflicts(path, file.read, owner)
		}
		if file.err == nil {
			file.good = file.read
		}
		for _, o := range file.good.objects {
			if k := keyOf(o.Object); owner[k] == "" {
				all[k], owner[k] = o, path
			}
		}
	}
	return all
}

// order puts the files first whose content in force stays as it is, also
// because what they hold now cannot be read.
func (f *folder) order() []string {
	changed := func(path string) int {
		file := f.file[path]
		c := conflict{}
		unreadable := file.err != nil && !errors.As(file.err, &c)
		if unreadable || file.err == nil && reflect.DeepEqual(file.good, file.read) {
			return 0
		}
		return 1
	}
	return slices.SortedFunc(maps.Keys(f.file), func(a, b string) int {
		return cmp.Or(cmp.Compare(changed(a), changed(b)), cmp.Compare(a, b))
	})
}

// conflicts returns an error if the content holds an object twice, or one that
// another file owns.
func (f *folder) conflicts(path string, m manifest, owner map[objectKey]string) error {
	first := map[objectKey]int{}
	for _, o := range m.objects {
		k := keyOf(o.Object)
		if other := owner[k]; other != "" {
			return conflict{fmt.Errorf("%s: document %d: %s is also in %s", path, o.document, k, other)}
		}
		if d, ok := first[k]; ok {
			return conflict{fmt.Errorf("%s: document %d: %s is also in document %d", path, o.document, k, d)}
		}
		first[k] = o.document
	}
	return nil
}

func keyOf(o metav1.Object) objectKey {
	k := objectKey{kindOf(o), state.Name{Namespace: o.GetNamespace(), Name: o.GetName()}}
	if k.kind == "Node" {
		k.Namespace = ""
	}
	return k
}

// hand tells the sink what differs from what it has.
func (f *folder) hand(sink state.Sink, all map[objectKey]placed) {
	now := map[objectKey]any{}
	for k, o := range all {
		if !selected(o.Object) {
			continue
		}
		converted, wrong := convert(o.Object)
		if converted == nil {
			logProblems(f.log, o.Object, wrong)
			continue
		}
		now[k] = converted
		if reflect.DeepEqual(f.sent[k], converted) {
			continue
		}
		logProblems(f.log, o.Object, wrong)
		set(sink, converted)
	}
	for k := range f.sent {
		if now[k] == nil {
			unset(sink, k)
		}
	}
	f.sent = now
}

// selected applies the selectors that the API source gives to the API server.
func selected(o metav1.Object) bool {
	_, otherProxy := o.GetLabels()[otherProxyLabel]
	_, headless := o.GetLabels()[headlessLabel]
	switch o := o.(type) {
	case *corev1.Service:
		return !otherProxy && o.Spec.ClusterIP != corev1.ClusterIPNone
	case *discoveryv1.EndpointSlice:
		return !headless
	}
	return true
}

// convert returns the state's form of an object, or nil for one that no proxy
// reads.
func convert(o metav1.Object) (any, []string) {
	switch o := o.(type) {
	case *corev1.Service:
		out, wrong := convertService(o)
		if len(out.ClusterIPs) == 0 && out.Type != string(corev1.ServiceTypeExternalName) {
			wrong = append(wrong, "no clusterIP, and nothing assigns one here")
		}
		return out, wrong
	case *discoveryv1.EndpointSlice:
		out, wrong := convertSlice(o)
		if out == nil {
			return nil, wrong
		}
		return out, wrong
	case *corev1.Node:
		return convertNode(o)
	}
	return nil, nil
}

func set(sink state.Sink, converted any) {
	switch o := converted.(type) {
	case *state.Service:
		sink.SetService(o)
	case *state.Slice:
		sink.SetSlice(o)
	case *state.ClusterNode:
		sink.SetNode(o)
	}
}

func unset(sink state.Sink, k objectKey) {
	switch k.kind {
	case "Service":
		sink.DeleteService(k.Name)
	case "EndpointSlice":
		sink.DeleteSlice(k.Name)
	case "Node":
		sink.DeleteNode(k.Name.Name)
	}
}
