//go:build linux

package engine

import (
	"flag"
	"fmt"
	"maps"
	"slices"
	"sort"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

var modelLong = flag.Duration("engine.model", 0, "how long the property test of sandboxes goes on, beyond its few checks")

// modelBox is a sandbox as the model has it: its files, by path below its home.
type modelBox struct {
	files  map[string]string // content; "/" at the end of the path: a folder
	points []modelPoint      // checkpoints, the oldest first
}

// modelPoint is a checkpoint: what the files were.
type modelPoint struct {
	id    string
	files map[string]string
}

type world struct {
	t     *testing.T
	r     *rapid.T
	e     *Engine
	boxes map[string]*modelBox
	saved []modelPoint // snapshots, of all
}

// TestSandboxesAreAsTheModel drives random acts on sandboxes and compares their
// files with a model's.
func TestSandboxesAreAsTheModel(t *testing.T) {
	e := openEngine(t)
	flag.Set("rapid.checks", "6")
	until := time.Now().Add(*modelLong)
	for first := true; first || time.Now().Before(until); first = false {
		rapid.Check(t, func(r *rapid.T) { (&world{t: t, r: r, e: e, boxes: map[string]*modelBox{}}).run() })
	}
	eventually(t, 20*time.Second, "no layer is left", func() bool { return len(e.layers.All()) == 0 })
}

func (w *world) run() {
	w.create(api.SandboxSpec{Isolation: bailey.IsolationProcess}, map[string]string{})
	for range rapid.IntRange(10, 25).Draw(w.r, "steps") {
		if len(w.boxes) == 0 {
			w.create(api.SandboxSpec{Isolation: bailey.IsolationProcess}, map[string]string{})
		}
		id := rapid.SampledFrom(slices.Sorted(maps.Keys(w.boxes))).Draw(w.r, "sandbox")
		b := w.boxes[id]
		switch rapid.SampledFrom([]string{"write", "write", "write", "remove", "remove", "checkpoint", "checkpoint", "undo", "undo", "fork", "pause", "stop", "snapshot", "restore", "delete", "live", "look"}).Draw(w.r, "act") {
		case "write":
			dir, name := w.path("dir"), w.path("name")
			text := fmt.Sprint(rapid.IntRange(0, 1<<20).Draw(w.r, "text"))
			w.sh(id, fmt.Sprintf("rm -rf %[1]s/%[2]s; [ -d %[1]s ] || rm -f %[1]s; mkdir -p %[1]s; echo %[3]s >%[1]s/%[2]s", dir, name, text))
			b.remove(dir + "/" + name)
			if _, ok := b.files[dir]; ok {
				b.remove(dir)
			}
			b.files[dir+"/"], b.files[dir+"/"+name] = "", text
		case "remove":
			p := w.path("path")
			w.sh(id, "rm -rf "+p)
			b.remove(p)
		case "checkpoint":
			s, err := w.e.Checkpoint(w.t.Context(), me, id, "")
			w.must(err)
			b.points = append(b.points, modelPoint{s.ID, maps.Clone(b.files)})
		case "undo":
			if len(b.points) == 0 {
				continue
			}
			p := b.points[rapid.IntRange(0, len(b.points)-1).Draw(w.r, "to")]
			w.awake(id)
			_, err := w.e.Undo(w.t.Context(), me, id, api.UndoRequest{To: p.id, Kill: true})
			w.must(err)
			b.files = maps.Clone(p.files)
		case "fork":
			if len(w.boxes) > 4 {
				continue
			}
			list, err := w.e.Fork(w.t.Context(), me, id, api.ForkRequest{Count: rapid.IntRange(1, 2).Draw(w.r, "forks")})
			w.must(err)
			for _, s := range list {
				w.boxes[s.ID] = &modelBox{files: maps.Clone(b.files)}
			}
		case "pause", "stop":
			_, err := w.e.Pause(w.t.Context(), me, id, api.PauseRequest{ToDisk: rapid.Bool().Draw(w.r, "to disk")})
			w.must(err)
		case "snapshot":
			s, err := w.e.Snapshot(w.t.Context(), me, id, api.SnapshotSpec{})
			w.must(err)
			w.saved = append(w.saved, modelPoint{s.ID, maps.Clone(b.files)})
		case "restore":
			if len(w.saved) == 0 || len(w.boxes) > 4 {
				continue
			}
			p := rapid.SampledFrom(w.saved).Draw(w.r, "snapshot")
			w.create(api.SandboxSpec{Snapshot: p.id}, p.files)
		case "delete":
			w.must(w.e.Delete(w.t.Context(), me, id))
			delete(w.boxes, id)
		case "live": // a process that lives from here on
			w.sh(id, "sleep 1000 </dev/null >/dev/null 2>&1 &")
		case "look":
			w.look(id)
		}
	}
	for id := range w.boxes {
		w.look(id)
		w.must(w.e.Delete(w.t.Context(), me, id))
	}
	for _, p := range w.saved {
		s := hashed(w.t, w.e, p.id)
		w.must(w.e.DeleteSnapshot(w.t.Context(), me, s.ID))
	}
}

// path is one of few, so that acts meet.
func (w *world) path(what string) string {
	return rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(w.r, what)
}

func (w *world) must(err error) {
	if err != nil {
		w.t.Fatal(err)
	}
}

func (w *world) create(spec api.SandboxSpec, files map[string]string) {
	s, err := w.e.Create(w.t.Context(), me, spec)
	w.must(err)
	w.boxes[s.ID] = &modelBox{files: maps.Clone(files)}
}

// awake resumes what is paused: files are not taken back under a frozen process.
func (w *world) awake(id string) {
	_, err := w.e.Resume(w.t.Context(), me, id)
	w.must(err)
}

func (w *world) sh(id, script string) string {
	return sh(w.t, w.e, id, "mkdir -p ~/m; cd ~/m; "+script)
}

// look compares what a sandbox has with the model.
func (w *world) look(id string) {
	got := w.sh(id, `find . -mindepth 1 | sort | while read -r p; do if [ -d "$p" ]; then echo "$p/"; else echo "$p $(cat "$p")"; fi; done`)
	var want []string
	for p, text := range w.boxes[id].files {
		if strings.HasSuffix(p, "/") {
			want = append(want, "./"+p)
		} else {
			want = append(want, "./"+p+" "+text)
		}
	}
	lines := strings.Fields(strings.ReplaceAll(got, " ", "="))
	for i := range want {
		want[i] = strings.ReplaceAll(want[i], " ", "=")
	}
	sort.Strings(lines)
	sort.Strings(want)
	if !slices.Equal(lines, want) {
		w.t.Fatalf("the sandbox %s has\n%q, the model\n%q", id, lines, want)
	}
}

// remove removes a path with all below it.
func (b *modelBox) remove(p string) {
	for q := range b.files {
		if q == p || strings.HasPrefix(q, p+"/") {
			delete(b.files, q)
		}
	}
}
