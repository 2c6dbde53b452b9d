//go:build linux

package engine

import (
	"archive/tar"
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// TestHostileInside: code inside that has prepared its files for whoever looks at them
// from outside gets nothing of the host out, and nothing into it: by the files API, by
// snapshots and by mounts that are added.
func TestHostileInside(t *testing.T) {
	e := openEngine(t)
	dir := t.TempDir()
	secret := filepath.Join(dir, "secret")
	if err := os.WriteFile(secret, []byte("of the host"), 0o644); err != nil {
		t.Fatal(err)
	}
	for name, spec := range atLevels {
		t.Run(name, func(t *testing.T) {
			s := create(t, e, spec)
			sh(t, e, s.ID, "mkdir -p ~/d && cd ~/d && ln -s "+secret+" abs && ln -s ../../../../../../../../.."+secret+" up && ln -s /proc/1/root"+secret+" proc && ln -s /proc/self/root dir && ln -s /proc/self/cwd cwd && ln -s "+dir+" folder")
			for _, p := range []string{"abs", "up", "proc", "dir" + secret, "cwd" + secret, "folder/secret", "../../../../../.." + secret} {
				r, _, err := e.ReadFile(t.Context(), me, s.ID, "d/"+p, 0, -1)
				if err == nil {
					b, _ := io.ReadAll(r)
					r.Close()
					t.Errorf("%s has %q", p, b)
				}
				if _, err := e.WriteFile(t.Context(), me, s.ID, "d/"+p, 0o644, strings.NewReader("of the sandbox")); err == nil {
					t.Logf("%s was written inside", p)
				}
			}
			for _, p := range []string{"folder", "dir"} {
				if err := e.RemoveFile(t.Context(), me, s.ID, "d/"+p+secret, true); err == nil {
					t.Logf("%s was removed inside", p)
				}
			}
			var out bytes.Buffer
			if err := e.TarOut(t.Context(), me, s.ID, "d", &out); err != nil {
				t.Fatal(err)
			}
			for r := tar.NewReader(&out); ; {
				h, err := r.Next()
				if errors.Is(err, io.EOF) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
				if b, err := io.ReadAll(r); err != nil || bytes.Contains(b, []byte("of the host")) {
					t.Errorf("%s has %q, %v", h.Name, b, err)
				}
			}
			// What a layer must not have: nobody inside can make it.
			for _, script := range []string{
				"mknod ~/null c 1 3", "mknod ~/disk b 8 0", "mknod ~/gone c 0 0",
				"setfattr -n trusted.overlay.redirect -v /etc ~/d", "setfattr -n trusted.overlay.opaque -v y ~/d", "setfattr -n user.overlay.redirect -v /etc ~/d",
				"mount -t tmpfs none ~/d", "mount --bind / ~/d", "echo 1 > /proc/sys/kernel/sysrq", "echo x > /proc/sysrq-trigger", "echo '|/x' > /proc/sys/kernel/core_pattern",
			} {
				// The last one may be possible where it means nothing: what a layer says is looked at below.
				if _, err := trySh(t, e, s.ID, script+" 2>/dev/null"); err == nil && !strings.Contains(script, "user.overlay") {
					t.Errorf("%s: it could", script)
				}
			}
			// A place on the way to which there is a link is refused.
			sh(t, e, s.ID, "ln -s / ~/way; ln -s /etc ~/place")
			home := sh(t, e, s.ID, "cd ~ && pwd")
			for _, target := range []string{home + "/way/new", home + "/place"} {
				if _, err := e.AddMount(t.Context(), me, s.ID, dir+":"+target, nil); err == nil {
					t.Errorf("something is mounted at %s", target)
				}
			}
			if _, err := e.Snapshot(t.Context(), me, s.ID, api.SnapshotSpec{}); err != nil {
				t.Error(err)
			}
			if _, err := e.Pause(t.Context(), me, s.ID, api.PauseRequest{ToDisk: true}); err != nil && bailey.CodeOf(err) != bailey.CodeUsage {
				t.Error(err)
			}
			if b, err := os.ReadFile(secret); err != nil || string(b) != "of the host" {
				t.Errorf("the host's file has %q, %v", b, err)
			}
		})
	}
}
