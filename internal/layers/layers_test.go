package layers

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

var ctx = context.Background()

var timeZero = time.Unix(0, 0)

func TestCapturedSealedAndImportedAreTheSame(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	up := sample(t, dir)
	captured, err := s.Capture(ctx, "captured", "", up, IDs{})
	must(t, err)
	sealed, err := s.Seal(ctx, "sealed", "", up, IDs{})
	must(t, err)
	if _, err := os.Lstat(up); !os.IsNotExist(err) {
		t.Errorf("the upper folder is still there: %v", err)
	}
	if sealed.Method != Sealed || captured.Method != Copied && captured.Method != Reflinked {
		t.Errorf("methods are %s and %s", sealed.Method, captured.Method)
	}
	want := hashed(t, s, "sealed")
	if got := hashed(t, s, "captured"); got != want {
		t.Errorf("the captured layer has the hash %s, the sealed one %s", got, want)
	}
	var tar bytes.Buffer
	must(t, s.WriteTar(ctx, "captured", &tar))
	sum := sha256.Sum256(tar.Bytes())
	if got := "sha256:" + hex.EncodeToString(sum[:]); got != want {
		t.Errorf("the canonical form has the hash %s, the layer %s", got, want)
	}
	other := open(t, tempDir(t))
	_, err = other.ReadTar(ctx, "imported", "", bytes.NewReader(tar.Bytes()), IDs{})
	must(t, err)
	if got := hashed(t, other, "imported"); got != want {
		t.Errorf("the imported layer has the hash %s", got)
	}
	var st unix.Stat_t
	l, err := other.Get("imported")
	must(t, err)
	must(t, unix.Lstat(l.Dir+"/sparse", &st))
	if st.Blocks*512 > 1<<20 {
		t.Errorf("a file with a hole of 8 MiB takes %d bytes", st.Blocks*512)
	}
	if l.Files != 15 {
		t.Errorf("it has %d files", l.Files)
	}
}

func TestWhatIsKnownSurvivesTheStore(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	_, err := s.Seal(ctx, "a", "", sample(t, dir), IDs{UID: []IDRange{{Disk: uint32(os.Geteuid()), Inside: 0, Count: 1}}})
	must(t, err)
	_, err = s.Seal(ctx, "b", "a", sample(t, dir), IDs{})
	must(t, err)
	hashed(t, s, "a")
	want := s.All()
	s = open(t, dir)
	got := s.All()
	if len(got) != 2 || len(want) != 2 {
		t.Fatalf("%d layers of %d", len(got), len(want))
	}
	for i := range want {
		a, b := want[i], got[i]
		if a.Hash != b.Hash || a.Parent != b.Parent || a.Bytes != b.Bytes || a.Method != b.Method || len(a.IDs.UID) != len(b.IDs.UID) {
			t.Errorf("got %+v, want %+v", b, a)
		}
	}
	if err := s.Remove(ctx, "a"); bailey.CodeOf(err) != bailey.CodeBusy {
		t.Errorf("a layer that another stands on: %v", err)
	}
	if got := s.Unused(map[string]bool{"b": true}); len(got) != 0 {
		t.Errorf("unused: %v", got)
	}
	for _, id := range s.Unused(nil) {
		must(t, s.Remove(ctx, id))
	}
	must(t, s.Remove(ctx, "a"))
	entries, err := os.ReadDir(filepath.Join(dir, folderName))
	must(t, err)
	if len(entries) != 0 {
		t.Errorf("left: %v", entries)
	}
	_, err = s.Chain("b")
	wantCode(t, err, bailey.CodeRestoreIncomplete, filepath.Join(dir, folderName, "b"))
}

// A death at any step leaves either the layer or the upper folder.
func TestDeathInSeal(t *testing.T) {
	for name, step := range map[string]struct {
		until func(s *Store, l *Layer, up string)
		layer bool
	}{
		"described": {func(s *Store, l *Layer, up string) {
			tmp, _ := s.staging(l.ID)
			writeMeta(tmp, l.meta(timeZero), false)
		}, false},
		"moved": {func(s *Store, l *Layer, up string) {
			tmp, _ := s.staging(l.ID)
			writeMeta(tmp, l.meta(timeZero), false)
			os.Rename(up, filepath.Join(tmp, treeName))
		}, true},
		"copied without description": {func(s *Store, l *Layer, up string) {
			tmp, _ := s.staging(l.ID)
			os.MkdirAll(filepath.Join(tmp, treeName, "x"), 0o755)
		}, false},
		"removed": {func(s *Store, l *Layer, up string) {
			s.Capture(ctx, l.ID, "", up, IDs{})
			os.Rename(s.path(l.ID), filepath.Join(s.dir, gonePrefix+"X"))
		}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			s := open(t, dir)
			up := sample(t, dir)
			step.until(s, &Layer{ID: "x", Dir: filepath.Join(s.path("x"), treeName), Method: Sealed}, up)
			s = open(t, dir)
			_, err := s.Get("x")
			if _, uerr := os.Lstat(up); (err == nil) != step.layer || (uerr == nil) == step.layer {
				t.Errorf("the layer: %v, the upper folder: %v", err, uerr)
			}
			entries, err := os.ReadDir(s.dir)
			must(t, err)
			for _, e := range entries {
				if strings.HasPrefix(e.Name(), ".") {
					t.Errorf("left: %s", e.Name())
				}
			}
			if !step.layer {
				_, err := s.Seal(ctx, "x", "", up, IDs{})
				must(t, err)
			}
		})
	}
}

func TestVerifyNamesTheFirstPath(t *testing.T) {
	for name, c := range map[string]struct {
		harm func(t *testing.T, fs string)
		path string
		full bool
	}{
		"content": {func(t *testing.T, fs string) { must(t, os.WriteFile(fs+"/etc/passwd", []byte("evil:x:0:0\n"), 0)) }, "/etc/passwd", false},
		"content, old time": {func(t *testing.T, fs string) {
			var st unix.Stat_t
			must(t, unix.Stat(fs+"/sparse", &st))
			f, err := os.OpenFile(fs+"/sparse", os.O_WRONLY, 0)
			must(t, err)
			f.WriteAt([]byte("X"), 100)
			must(t, f.Close())
			must(t, unix.UtimesNanoAt(unix.AT_FDCWD, fs+"/sparse", []unix.Timespec{st.Atim, st.Mtim}, 0))
		}, "/sparse", false},
		"shorter":    {func(t *testing.T, fs string) { must(t, os.Truncate(fs+"/sparse", 5)) }, "/sparse", false},
		"gone":       {func(t *testing.T, fs string) { must(t, os.Remove(fs+"/link")) }, "/link", false},
		"more":       {func(t *testing.T, fs string) { must(t, os.WriteFile(fs+"/etc/more", nil, 0o644)) }, "/etc/more", false},
		"mode":       {func(t *testing.T, fs string) { must(t, os.Chmod(fs+"/pipe", 0o666)) }, "/pipe", false},
		"kind":       {func(t *testing.T, fs string) { os.Remove(fs + "/link"); must(t, os.Mkdir(fs+"/link", 0o755)) }, "/link", false},
		"deletion":   {func(t *testing.T, fs string) { must(t, os.Remove(fs+"/etc/gone")) }, "/etc/gone", false},
		"everything": {func(t *testing.T, fs string) { must(t, os.Rename(fs, fs+".away")) }, "/fs", false},
		"the list":   {func(t *testing.T, fs string) { must(t, os.Truncate(filepath.Dir(fs)+"/manifest", 100)) }, "manifest", true},
		"no list":    {func(t *testing.T, fs string) { must(t, os.Remove(filepath.Dir(fs)+"/manifest")) }, "manifest", true},
	} {
		t.Run(name, func(t *testing.T) {
			dir := tempDir(t)
			s := open(t, dir)
			l, err := s.Seal(ctx, "x", "", sample(t, dir), IDs{})
			must(t, err)
			if ok, err := s.Verify(ctx, "x", false); ok || err != nil {
				t.Errorf("without a hash: %v %v", ok, err)
			}
			hashed(t, s, "x")
			for _, full := range []bool{false, true} {
				if ok, err := s.Verify(ctx, "x", full); !ok || err != nil {
					t.Fatalf("whole: %v %v", ok, err)
				}
			}
			c.harm(t, l.Dir)
			_, err = s.Verify(ctx, "x", c.full)
			wantCode(t, err, bailey.CodeRestoreIncomplete, c.path)
		})
	}
}

// A restored backup has other inodes: the contents decide.
func TestVerifyOfACopy(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	l, err := s.Seal(ctx, "x", "", sample(t, dir), IDs{})
	must(t, err)
	hashed(t, s, "x")
	_, err = s.Capture(ctx, "copy", "", l.Dir, IDs{})
	must(t, err)
	c, err := s.Get("copy")
	must(t, err)
	must(t, os.Rename(l.Dir, dir+"/away"))
	must(t, os.Rename(c.Dir, l.Dir))
	if ok, err := s.Verify(ctx, "x", false); !ok || err != nil {
		t.Errorf("%v %v", ok, err)
	}
}

func TestIDsAreThoseInside(t *testing.T) {
	testneeds.Root(t, "files of others")
	dir := tempDir(t)
	s := open(t, dir)
	for i, c := range []struct {
		ids  IDs
		disk int
	}{
		{IDs{}, 1000},
		{IDs{UID: []IDRange{{Disk: 100000, Inside: 0, Count: 65536}}, GID: []IDRange{{Disk: 100000, Inside: 0, Count: 65536}}}, 101000},
	} {
		up := filepath.Join(dir, "upper")
		must(t, os.Mkdir(up, 0o755))
		must(t, os.WriteFile(up+"/f", []byte("x"), 0o644))
		for _, p := range []string{up, up + "/f"} {
			must(t, os.Chown(p, c.disk, c.disk))
			must(t, os.Chtimes(p, timeZero, timeZero))
		}
		id := string(rune('a' + i))
		_, err := s.Seal(ctx, id, "", up, c.ids)
		must(t, err)
		var tar bytes.Buffer
		must(t, s.WriteTar(ctx, id, &tar))
		l, err := s.ReadTar(ctx, id+"2", "", &tar, c.ids)
		must(t, err)
		var st unix.Stat_t
		must(t, unix.Stat(l.Dir+"/f", &st))
		if int(st.Uid) != c.disk {
			t.Errorf("read back it belongs to %d, not %d", st.Uid, c.disk)
		}
	}
	if a, b := hashed(t, s, "a"), hashed(t, s, "b"); a != b {
		t.Error("the same owners inside give different hashes")
	}
	var tar bytes.Buffer
	must(t, s.WriteTar(ctx, "a", &tar))
	_, err := s.ReadTar(ctx, "c", "", &tar, IDs{UID: []IDRange{{Disk: 5, Inside: 0, Count: 1}}})
	wantCode(t, err, bailey.CodeNotAvailable, "1000")
}

func TestHolesAreNotHashedForEver(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	up := filepath.Join(dir, "upper")
	must(t, os.Mkdir(up, 0o755))
	must(t, os.WriteFile(up+"/vast", nil, 0o644))
	must(t, os.Truncate(up+"/vast", 8<<40))
	_, err := s.Capture(ctx, "x", "", up, IDs{})
	must(t, err)
	_, err = s.Hash(ctx, "x")
	wantCode(t, err, bailey.CodeTooLarge, "vast")
}

func TestDepthIsBounded(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	up := filepath.Join(dir, "upper")
	must(t, os.Mkdir(up, 0o755))
	fd, err := unix.Open(up, readDir, 0)
	must(t, err)
	for range 700 {
		must(t, unix.Mkdirat(fd, "d", 0o755))
		next, err := unix.Openat(fd, "d", readDir, 0)
		must(t, err)
		unix.Close(fd)
		fd = next
	}
	unix.Close(fd)
	_, err = s.Capture(ctx, "x", "", up, IDs{})
	wantCode(t, err, bailey.CodeStorage, "nested")
	_, err = s.Seal(ctx, "y", "", up, IDs{})
	must(t, err)
	_, err = s.Hash(ctx, "y")
	wantCode(t, err, bailey.CodeStorage, "nested")
	must(t, s.Remove(ctx, "y"))
}

func TestDiff(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	ground := filepath.Join(dir, "ground")
	must(t, os.MkdirAll(ground+"/old/sub", 0o755))
	must(t, os.WriteFile(ground+"/same", []byte("same"), 0o644))
	must(t, os.WriteFile(ground+"/old/sub/f", []byte("f"), 0o644))
	must(t, os.WriteFile(ground+"/mode", []byte("m"), 0o644))
	up := filepath.Join(dir, "upper")
	must(t, os.Mkdir(up, 0o755))
	must(t, unix.Mknod(up+"/old", unix.S_IFCHR, 0))
	must(t, os.WriteFile(up+"/same", []byte("same"), 0o644))
	must(t, os.WriteFile(up+"/mode", []byte("m"), 0o600))
	must(t, os.WriteFile(up+"/new", []byte("new"), 0o644))
	must(t, unix.Mknod(up+"/never", unix.S_IFCHR, 0))
	var got []string
	err := s.Diff(ctx, State{Ground: []string{ground}}, State{Ground: []string{ground}, Upper: up}, func(c api.Change) error {
		got = append(got, c.Op+" "+c.Path)
		return nil
	})
	must(t, err)
	want := "mode mode, added new, deleted old, deleted old/sub, deleted old/sub/f"
	if strings.Join(got, ", ") != want {
		t.Errorf("got %v, want %v", got, want)
	}
}

func TestBadIDs(t *testing.T) {
	dir := tempDir(t)
	s := open(t, dir)
	up := sample(t, dir)
	for _, id := range []string{"", ".", "..", "a/b", ".x", strings.Repeat("a", 65), "a\x00"} {
		if _, err := s.Seal(ctx, id, "", up, IDs{}); err == nil {
			t.Errorf("%q is accepted", id)
		}
	}
	_, err := s.Seal(ctx, "a", "nobody", up, IDs{})
	wantCode(t, err, bailey.CodeRestoreIncomplete, "nobody")
	_, err = s.Seal(ctx, "a", "", up, IDs{})
	must(t, err)
	_, err = s.Seal(ctx, "a", "", sample(t, dir), IDs{})
	wantCode(t, err, bailey.CodeConflict)
}
