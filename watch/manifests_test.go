package watch

import (
	"context"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
)

func svc(name, clusterIP string) string {
	return "---\napiVersion: v1\nkind: Service\nmetadata: {name: " + name + "}\nspec: {clusterIP: " + clusterIP + ", ports: [{port: 80}]}\n"
}

// folderTest is a folder and the sink that gets its objects.
type folderTest struct {
	*testing.T
	folder *folder
	sink   *recorder
}

func newFolderTest(t *testing.T) folderTest {
	return folderTest{t, newFolder(t.TempDir(), zap.NewNop()), newRecorder()}
}

func (f folderTest) write(name, text string) {
	f.Helper()
	must(f.T, os.WriteFile(filepath.Join(f.folder.dir, name), []byte(text), 0o600))
}

func (f folderTest) remove(name string) {
	f.Helper()
	must(f.T, os.Remove(filepath.Join(f.folder.dir, name)))
}

// expect updates and compares the calls, in any order, and the error.
func (f folderTest) expect(wrong []string, calls ...string) {
	f.Helper()
	err, failed := f.folder.update(f.sink)
	must(f.T, failed)
	for _, w := range wrong {
		if err == nil || !strings.Contains(err.Error(), w) {
			f.Errorf("error %v, want %q", err, w)
		}
	}
	if len(wrong) == 0 && err != nil {
		f.Errorf("error %v, want none", err)
	}
	got := f.sink.take()
	slices.Sort(got)
	expect(f.T, got, calls...)
}

func TestFolder(t *testing.T) {
	f := newFolderTest(t)
	f.expect(nil)
	f.write("web.yaml", svc("web", "10.96.0.1"))
	f.write("two.yml", svc("a", "10.96.0.2")+svc("b", "10.96.0.3"))
	f.write("bad.json", `{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "x"}, "spce": 1}`)
	f.write("notes.txt", "no manifest")
	f.write(".web.yaml.swp", "no manifest")
	must(t, os.Mkdir(filepath.Join(f.folder.dir, "sub"), 0o700))
	f.expect([]string{"bad.json", "document 1", "line 1", "spce"},
		"set service default/a [10.96.0.2]", "set service default/b [10.96.0.3]", "set service default/web [10.96.0.1]")

	t.Log("nothing new, nothing said")
	f.expect(nil)

	t.Log("a change, an object removed from a file, a file that becomes right")
	f.write("web.yaml", svc("web", "10.96.0.9"))
	f.write("two.yml", svc("b", "10.96.0.3"))
	f.write("bad.json", `{"kind": "Service", "apiVersion": "v1", "metadata": {"name": "x"}, "spec": {"clusterIP": "10.96.0.7", "ports": [{"port": 80}]}}`)
	f.expect(nil, "delete service default/a", "set service default/web [10.96.0.9]", "set service default/x [10.96.0.7]")

	t.Log("a file that becomes bad keeps its objects")
	f.write("web.yaml", svc("web", "10.96.0.8")+"kind: [")
	f.expect([]string{"web.yaml", "document 1"})
	f.write("web.yaml", "")
	f.expect([]string{"web.yaml", "empty"})

	t.Log("a bad file that is removed does not")
	f.remove("web.yaml")
	f.remove("bad.json")
	f.expect(nil, "delete service default/web", "delete service default/x")
}

func TestFolderWithAnObjectInTwoFiles(t *testing.T) {
	f := newFolderTest(t)
	f.write("m.yaml", svc("web", "10.96.0.1"))
	f.expect(nil, "set service default/web [10.96.0.1]")

	t.Log("the first to have it keeps it, whatever its name")
	f.write("a.yaml", svc("other", "10.96.0.2")+svc("web", "10.96.0.3"))
	f.expect([]string{"a.yaml", "document 2", "Service default/web", "m.yaml"})
	f.expect(nil)

	t.Log("the other takes over when it is gone")
	f.remove("m.yaml")
	f.expect(nil, "set service default/other [10.96.0.2]", "set service default/web [10.96.0.3]")

	t.Log("an object moves between files in one go")
	f.write("a.yaml", svc("other", "10.96.0.2"))
	f.write("z.yaml", svc("web", "10.96.0.3"))
	f.expect(nil)
	f.write("a.yaml", svc("other", "10.96.0.2")+svc("web", "10.96.0.3"))
	f.write("z.yaml", "# empty\n")
	f.expect(nil)

	t.Log("what a bad file keeps is its own too")
	f.write("y.yaml", svc("yak", "10.96.0.7"))
	f.expect(nil, "set service default/yak [10.96.0.7]")
	f.write("y.yaml", "kind: [")
	f.expect([]string{"y.yaml"})
	f.write("b.yaml", svc("yak", "10.96.0.8"))
	f.expect([]string{"b.yaml", "Service default/yak", "y.yaml"})
	f.remove("b.yaml")

	t.Log("an object that has moved from a file that is bad otherwise counts once")
	f.write("y.yaml", svc("web", "10.96.0.9")+svc("yak", "10.96.0.7"))
	f.write("b.yaml", svc("yak", "10.96.0.8"))
	f.expect([]string{"y.yaml", "Service default/web", "a.yaml"}, "set service default/yak [10.96.0.8]")
	f.remove("y.yaml")
	f.remove("b.yaml")
	f.expect(nil, "delete service default/yak")

	t.Log("twice in one file")
	f.write("z.yaml", svc("z", "10.96.0.4")+svc("z", "10.96.0.5"))
	f.expect([]string{"z.yaml", "document 2", "Service default/z", "document 1"})
}

func TestFolderSelects(t *testing.T) {
	f := newFolderTest(t)
	headless := "---\napiVersion: v1\nkind: Service\nmetadata: {name: h}\nspec: {clusterIP: None}\n"
	foreign := "---\napiVersion: v1\nkind: Service\nmetadata: {name: f, labels: {service.kubernetes.io/service-proxy-name: ''}}\nspec: {clusterIP: 10.96.0.1, ports: [{port: 80}]}\n"
	slice := "---\napiVersion: discovery.k8s.io/v1\nkind: EndpointSlice\naddressType: IPv4\nmetadata: {name: s, labels: {kubernetes.io/service-name: web LABEL}}\n"
	f.write("all.yaml", headless+foreign+strings.Replace(slice, "LABEL", ", service.kubernetes.io/headless: ''", 1))
	f.expect(nil)

	f.write("all.yaml", headless+strings.Replace(foreign, "service-proxy-name", "x", 1)+strings.Replace(slice, "LABEL", "", 1))
	f.expect(nil, "set service default/f [10.96.0.1]", "set slice default/s of default/web")

	t.Log("a label added later is a deletion")
	f.write("all.yaml", headless+foreign+strings.Replace(slice, "LABEL", ", service.kubernetes.io/headless: ''", 1))
	f.expect(nil, "delete service default/f", "delete slice default/s")
}

func TestManifests(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "web.yaml")
	must(t, os.WriteFile(path, []byte(svc("web", "10.96.0.1")), 0o600))
	core, logs := observer.New(zapcore.ErrorLevel)
	ctx, cancel := context.WithCancel(t.Context())
	sink, done := newRecorder(), make(chan error)
	go func() { done <- (&Manifests{Dir: dir, Log: zap.New(core)}).Run(ctx, sink) }()
	expect(t, sink.await(t, "synced"), "set service default/web [10.96.0.1]", "synced")

	must(t, os.WriteFile(path, []byte(svc("web", "10.96.0.2")), 0o600))
	expect(t, sink.await(t, "set service default/web [10.96.0.2]"), "set service default/web [10.96.0.2]")

	t.Log("as editors do: a new file takes the old one's name")
	must(t, os.WriteFile(path+"~", []byte(svc("web", "10.96.0.3")), 0o600))
	must(t, os.Rename(path+"~", path))
	expect(t, sink.await(t, "set service default/web [10.96.0.3]"), "set service default/web [10.96.0.3]")

	must(t, os.WriteFile(filepath.Join(dir, "bad.yaml"), []byte("a: b"), 0o600))
	must(t, os.WriteFile(filepath.Join(dir, "good.yaml"), []byte(svc("good", "10.96.0.4")), 0o600))
	sink.await(t, "set service default/good [10.96.0.4]")
	must(t, os.Remove(path))
	expect(t, sink.await(t, "delete service default/web"), "delete service default/web")
	if logs.Len() != 1 {
		t.Errorf("%d errors are logged, want one about bad.yaml", logs.Len())
	}
	cancel()
	must(t, <-done)
}

func TestManifestsWithoutAFolder(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "missing")
	err := (&Manifests{Dir: dir, Log: zap.NewNop()}).Run(t.Context(), newRecorder())
	if err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v", err)
	}
	sink := newRecorder()
	if err := ReadManifests(dir, sink, zap.NewNop()); err == nil || !strings.Contains(err.Error(), dir) {
		t.Errorf("error %v", err)
	}
	expect(t, sink.take())
}
