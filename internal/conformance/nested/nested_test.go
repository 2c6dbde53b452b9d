//go:build linux

package nested

import (
	"bytes"
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

const top = "../../.."

// kernel gives the kernel that the scripts have fetched, or skips.
func kernel(t *testing.T) Kernel {
	t.Helper()
	testneeds.Root(t, "an ordinary user's checkout has no kernel; nothing of this depends on who starts the machine")
	testneeds.Host(t, testneeds.AMD64)
	k, err := FindKernel(filepath.Join(top, ".cache/kernel"))
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// The container level works on the kernel that Debian 12 has: overlays of layers, of
// long stacks of them, places that are added, for root and an ordinary user.
func TestDebiansKernel(t *testing.T) {
	k := kernel(t)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Minute)
	defer cancel()
	var out bytes.Buffer
	want := []string{"TestProbe", "TestManyLayers", "TestPartsOfOverlaysAreNowhere", "TestAttachWritable"}
	res, err := Run(ctx, Options{Top: top, Packages: []string{"./internal/driver/linux"}, Args: []string{"-test.run=^(" + strings.Join(want, "|") + ")$"}, Users: []bool{false, true}, Out: &out, Programs: []string{"./cmd/bailey-init"}})
	if err != nil {
		t.Fatalf("%v\n%s", err, out.Bytes())
	}
	if res.Kernel != k.Release || !strings.HasPrefix(res.Kernel, "6.1.") || !res.Ok() {
		t.Errorf("Linux %s: %s\n%s", res.Kernel, res.Summary(), out.Bytes())
	}
	for _, s := range res.Steps {
		passed := slices.Sorted(slices.Values(s.Passed))
		if slices.Sort(want); !slices.Equal(passed, want) {
			t.Errorf("%s: passed %v, skipped %v", s.Name, s.Passed, s.Skipped)
		}
	}
}

func TestEarlyModulesInOrder(t *testing.T) {
	list, err := kernel(t).Early()
	if err != nil {
		t.Fatal(err)
	}
	at := func(name string) int {
		return slices.IndexFunc(list, func(p string) bool { return filepath.Base(p) == name+".ko" })
	}
	if at("virtio") < 0 || at("virtio_ring") > at("virtio_pci") || at("virtio_pci") < 0 || at("virtio_blk") < 0 {
		t.Errorf("%v", list)
	}
}

func TestResultCountsTests(t *testing.T) {
	r := newResult(plan.Plan{Steps: []plan.Step{{Name: "a"}, {Name: "b"}}}, &bytes.Buffer{})
	r.event(plan.Event{Output: []byte("=== RUN TestA\n--- PASS: TestA (0.1s)\n    --- FAIL: TestA/part (0s)\n--- SK")})
	r.event(plan.Event{Output: []byte("IP: TestB (0s)\n")})
	r.event(plan.Event{Ended: true})
	if r.Ok() {
		t.Error("the second step never ended")
	}
	r.event(plan.Event{Step: 1, Ended: true, Code: 3})
	if got, want := r.Summary(), "FAIL b: ended true, exit code 3\n1 passed, 1 failed, 1 skipped\n"; got != want || r.Ok() {
		t.Errorf("%q, want %q", got, want)
	}
	r.event(plan.Event{Step: 7, Ended: true}) // nothing of the plan
}

func TestReadEvents(t *testing.T) {
	for text, wrong := range map[string]string{`{"Kernel":"6"}` + "\n" + `{"Done":true}` + "\n": "", `{"Kernel":"6"}` + "\n": "not done", "{\n": "none", `{"Fatal":"no disk"}` + "\n": "no disk"} {
		done, err := readEvents(strings.NewReader(text), func(plan.Event) {})
		if err == nil && !done {
			err = errors.New("not done")
		}
		if (err == nil) != (wrong == "") || err != nil && !strings.Contains(err.Error(), wrong) {
			t.Errorf("%q: %v, want %q", text, err, wrong)
		}
	}
}

// The archive is what the kernel's own documentation says of it.
func TestArchive(t *testing.T) {
	var b bytes.Buffer
	a := &archive{w: &b}
	a.dir("d")
	a.file("d/f", []byte("hello"))
	if err := a.close(); err != nil {
		t.Fatal(err)
	}
	s := b.String()
	if len(s)%4 != 0 || strings.Count(s, "070701") != 3 || !strings.HasSuffix(strings.TrimRight(s, "\x00"), "TRAILER!!!") {
		t.Errorf("%q", s)
	}
	if i := strings.Index(s, "hello"); i < 0 || i%4 != 0 || !strings.HasPrefix(s[i+5:], "\x00\x00\x00070701") {
		t.Errorf("the content lies at %d: %q", i, s)
	}
}

func TestClosure(t *testing.T) {
	have := map[string]*installed{
		"a": {name: "a", needs: [][]string{{"gone", "b"}, {"virtual"}}}, "b": {name: "b", needs: [][]string{{"a"}}},
		"c": {name: "c", provides: []string{"virtual"}}, "d": {name: "d"},
	}
	list, err := closure(have, []string{"a"})
	var names []string
	for _, p := range list {
		names = append(names, p.name)
	}
	if err != nil || strings.Join(names, " ") != "a b c" {
		t.Errorf("%v %v", names, err)
	}
	if _, err := closure(have, []string{"a", "gone"}); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("%v", err)
	}
}

// A machine that cannot start says what its console said.
func TestMachineThatDoesNotStart(t *testing.T) {
	k := kernel(t)
	start := filepath.Join(t.TempDir(), "start.cpio")
	if err := os.WriteFile(start, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), 3*time.Minute)
	defer cancel()
	err := machine{kernel: k, start: start, memory: 512, processors: 1}.boot(ctx, func(plan.Event) {})
	if err == nil || !strings.Contains(err.Error(), "Unable to mount root") {
		t.Errorf("%v", err)
	}
}
