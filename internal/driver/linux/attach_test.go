package linux

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// hostFolder is a folder of the host with a file in it.
func hostFolder(t *testing.T, y yard) string {
	t.Helper()
	dir := filepath.Join(y.Dir, "added")
	if err := os.MkdirAll(filepath.Join(dir, "sub"), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "file"), []byte("of the host\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

// A folder shown later is there at once, for what runs already, and read-only
// means it.
func TestAttach(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		y := newYard(t, level)
		in, c := stays(t, y)
		dir := hostFolder(t, y)
		ctx := context.Background()
		target := "/place/new/deep"
		if err := in.Attach(ctx, driver.Place{Kind: driver.Bind, Source: dir, Target: target, IsDir: true, ReadOnly: true, HostIDs: true}); err != nil {
			t.Fatal(err)
		}
		out, status := sh(t, c, "cat "+target+"/file && ls "+target)
		if out != "of the host\nfile\nsub\n" || status != 0 {
			t.Errorf("%d %q", status, out)
		}
		for _, script := range []string{"echo x > " + target + "/file", "echo x > " + target + "/new", "rm " + target + "/file", "mount -o remount,rw " + target, "umount " + target} {
			if out, status := sh(t, c, script+" 2>&1"); status == 0 {
				t.Errorf("%s: %s", script, out)
			}
		}
		// A file.
		if err := in.Attach(ctx, driver.Place{Kind: driver.Bind, Source: filepath.Join(dir, "file"), Target: "/place/one", ReadOnly: true, HostIDs: true}); err != nil {
			t.Fatal(err)
		}
		if out, _ := sh(t, c, "cat /place/one"); out != "of the host\n" {
			t.Errorf("%q", out)
		}
		// Copy-on-write.
		layer := filepath.Join(y.Dir, "added-layer")
		for _, name := range []string{"upper", "work"} {
			if err := os.MkdirAll(filepath.Join(layer, name), 0o755); err != nil {
				t.Fatal(err)
			}
		}
		t.Cleanup(func() {
			for _, name := range []string{"", "/incompat", "/incompat/volatile"} {
				os.Chmod(filepath.Join(layer, "work/work"+name), 0o700)
			}
		})
		cow := driver.Place{Kind: driver.CoW, Target: "/place/cow", IsDir: true, Overlay: &driver.Overlay{Lower: []string{dir}, Layer: layer, HostIDs: true}}
		if err := in.Attach(ctx, cow); err != nil {
			t.Fatal(err)
		}
		if out, status := sh(t, c, "cd /place/cow && echo changed > file && cat file && echo new > new"); out != "changed\n" || status != 0 {
			t.Errorf("%d %q", status, out)
		}
		if b, _ := os.ReadFile(filepath.Join(dir, "file")); string(b) != "of the host\n" {
			t.Errorf("the host's file says %q", b)
		}
		if b, _ := os.ReadFile(filepath.Join(layer, "upper/new")); string(b) != "new\n" {
			t.Errorf("the layer has %q", b)
		}
		// And as long as nobody said that it may be, nothing is writable.
		rw := driver.Place{Kind: driver.Bind, Source: dir, Target: "/place/rw", IsDir: true, HostIDs: true}
		if err := in.Attach(ctx, rw); bailey.CodeOf(err) != bailey.CodeNotAvailable {
			t.Error(err)
		}
	})
}

// A folder of the host that is writable: its files are the owner's, inside and
// outside, and nobody gets a set-user-id bit into it.
func TestAttachWritable(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		y := newYard(t, level)
		y.Late = true
		in, c := stays(t, y)
		dir := hostFolder(t, y)
		if err := in.Attach(context.Background(), driver.Place{Kind: driver.Bind, Source: dir, Target: "/place/rw", IsDir: true, HostIDs: true}); err != nil {
			t.Fatal(err)
		}
		if out, status := sh(t, c, "cd /place/rw && echo inside > mine && stat -c %u mine && id -u"); status != 0 {
			t.Errorf("%d %q", status, out)
		} else if a, b, _ := strings.Cut(out, "\n"); a+"\n" != b {
			t.Errorf("it belongs to %q", out)
		}
		fi, err := os.Stat(filepath.Join(dir, "mine"))
		if err != nil || !owned(fi) {
			t.Errorf("%v %+v", err, fi)
		}
		sh(t, c, "cp /bin/true /place/rw/set && chmod 4755 /place/rw/set")
		if fi, err := os.Stat(filepath.Join(dir, "set")); err == nil && fi.Mode()&os.ModeSetuid != 0 {
			t.Error("a set-user-id program is on the host")
		}
	})
}

// A path that the sandbox has made lead elsewhere is refused; nothing of the host
// is ever mounted on.
func TestAttachRefuses(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		y := newYard(t, level)
		in, c := stays(t, y)
		dir := hostFolder(t, y)
		if out, status := sh(t, c, "cd /place && ln -s /etc link && ln -s /proc/1/root out && ln -s ../../../../../../tmp up && echo x > file && mkdir dir && ln -s /etc/passwd dir/passwd"); status != 0 {
			t.Fatal(out)
		}
		bind := func(target string) driver.Place {
			return driver.Place{Kind: driver.Bind, Source: dir, Target: target, IsDir: true, ReadOnly: true, HostIDs: true}
		}
		for name, p := range map[string]driver.Place{
			"through a link":     bind("/place/link/x"),
			"a link":             bind("/place/link"),
			"out by proc":        bind("/place/out/etc"),
			"out by dots":        bind("/place/up/x"),
			"over a file":        bind("/place/file"),
			"below a file":       bind("/place/file/x"),
			"not clean":          bind("/place/../etc"),
			"relative":           bind("work/x"),
			"the root":           bind("/"),
			"proc":               bind("/proc/1"),
			"dev":                bind("/dev/shm"),
			"NUL":                bind("/place/\x00"),
			"no source":          {Kind: driver.Bind, Source: filepath.Join(y.Dir, "none"), Target: "/place/x", IsDir: true, ReadOnly: true, HostIDs: true},
			"a link of a source": {Kind: driver.Bind, Source: "/proc/self/cwd", Target: "/place/x", IsDir: true, ReadOnly: true, HostIDs: true},
			"file over a link":   {Kind: driver.Bind, Source: filepath.Join(dir, "file"), Target: "/place/dir/passwd", ReadOnly: true, HostIDs: true},
			"a kind":             {Kind: driver.Mask, Target: "/place/x", IsDir: true},
			"no overlay":         {Kind: driver.CoW, Target: "/place/x", IsDir: true},
		} {
			if err := in.Attach(context.Background(), p); bailey.CodeOf(err) != bailey.CodeUsage {
				t.Errorf("%s: %v", name, err)
			}
		}
		if level == bailey.IsolationProcess {
			if err := in.Attach(context.Background(), bind("/nowhere/x")); bailey.CodeOf(err) != bailey.CodeUsage {
				t.Error(err)
			}
			writable := bind("/elsewhere")
			writable.Kind, writable.ReadOnly, writable.HostIDs = driver.Scratch, false, false
			if err := in.Attach(context.Background(), writable); bailey.CodeOf(err) != bailey.CodeNotAvailable {
				t.Error(err)
			}
		}
		in.Kill(bailey.EndUser)
		await(t, in)
		if err := in.Attach(context.Background(), bind("/place/x")); bailey.CodeOf(err) != bailey.CodeSandboxLost {
			t.Error(err)
		}
	})
}

// Of an adopted sandbox, while it is frozen.
func TestAttachAdopted(t *testing.T) {
	y := newYard(t, bailey.IsolationContainer)
	m := y.make(t)
	m.kill()
	ctx := context.Background()
	in, err := y.driver().Adopt(ctx, y.spec(), m.record, m.kept())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(ctx)
	frozen := in.Pause(ctx) == nil
	before := openFiles(t)
	if err := in.(driver.Staying).Attach(ctx, driver.Place{Kind: driver.Bind, Source: hostFolder(t, y), Target: "/mnt", IsDir: true, ReadOnly: true, HostIDs: true}); err != nil {
		t.Fatal(err)
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open, and %d are", before, after)
	}
	if frozen {
		if err := in.Resume(ctx); err != nil {
			t.Fatal(err)
		}
	}
	if out, _ := sh(t, speak(t, in), "cat /mnt/file"); out != "of the host\n" {
		t.Errorf("%q", out)
	}
}

func owned(fi os.FileInfo) bool {
	st, ok := fi.Sys().(*syscall.Stat_t)
	return ok && int(st.Uid) == os.Geteuid() && int(st.Gid) == os.Getegid()
}
