package hostview

import (
	"os"
	"path"
	"testing"
)

// checkShape fails the test if a driver could not make v's entries one after
// the other on an empty root.
func checkShape(t *testing.T, root string, v View) {
	t.Helper()
	at := map[string]Entry{}
	previous := ""
	for _, e := range v.Entries {
		if e.Target <= previous || !path.IsAbs(e.Target) || path.Clean(e.Target) != e.Target {
			t.Errorf("entry %q after %q: not sorted, or not clean", e.Target, previous)
		}
		previous = e.Target
		if e.Why == "" {
			t.Errorf("%s: no reason is given", e.Target)
		}
		if e.Kind == KindBind || e.Kind == KindWorkspace {
			fi, err := os.Lstat(root + e.Source)
			if err != nil || fi.IsDir() != e.IsDir || fi.Mode()&os.ModeSymlink != 0 {
				t.Errorf("%s: source %s is not as the entry says: %v", e.Target, e.Source, err)
			}
		}
		parent, ok := nearest(at, e.Target)
		switch {
		case !ok || parent.Kind == KindDir || parent.Kind == KindHome:
			dir := path.Dir(e.Target)
			if ok && dir != parent.Target || !ok && dir != "/" && dir != "/tmp" {
				t.Errorf("%s: its parent has no entry", e.Target)
			}
		case parent.Kind == KindBind || parent.Kind == KindWorkspace:
			there := root + path.Join(parent.Source, below(e.Target, parent.Target))
			fi, err := os.Lstat(there)
			if err != nil || fi.IsDir() != e.IsDir || fi.Mode()&os.ModeSymlink != 0 {
				t.Errorf("%s: nothing to mount on in %s: %v", e.Target, parent.Target, err)
			}
		default:
			t.Errorf("%s lies below %s, which is a %s", e.Target, parent.Target, parent.Kind)
		}
		if e.Kind == KindMask && (!ok || parent.Kind != KindBind) {
			t.Errorf("%s covers nothing", e.Target)
		}
		at[e.Target] = e
	}
}

// TestThisHost computes the view of the machine that the test runs on.
func TestThisHost(t *testing.T) {
	home, err := os.UserHomeDir()
	if err != nil {
		t.Skip("this user has no home folder: " + err.Error())
	}
	v, err := Compute(Input{Home: home, UID: os.Getuid(), GID: os.Getgid(), Env: os.Environ(), Workspace: t.TempDir()})
	if err != nil {
		t.Fatal(err)
	}
	checkShape(t, "", v)
	seen := map[string]Kind{}
	for _, e := range v.Entries {
		seen[e.Target] = e.Kind
		t.Logf("%-9s %-50s %s %s ro=%v cow=%v (%s)", e.Kind, e.Target, e.Source, e.Link, e.ReadOnly, e.CopyOnWrite, e.Why)
	}
	for _, n := range v.Notes {
		t.Logf("note %s: %s", n.Subject, n.Text)
	}
	if seen["/usr"] != KindBind || seen["/bin"] == "" || seen["/etc/passwd"] != KindFile {
		t.Errorf("the system is not there: %v", seen)
	}
	for _, p := range []string{"/etc/shadow", "/etc/ssh", "/run", "/var/run", "/boot", "/srv", "/home/nobody", home + "/.ssh"} {
		if seen[p] != "" {
			t.Errorf("%s is there", p)
		}
	}
}

func BenchmarkCompute(b *testing.B) {
	home, err := os.UserHomeDir()
	if err != nil {
		b.Skip("this user has no home folder: " + err.Error())
	}
	in := Input{Home: home, UID: os.Getuid(), GID: os.Getgid(), Env: os.Environ(), Workspace: b.TempDir()}
	for b.Loop() {
		if _, err := Compute(in); err != nil {
			b.Fatal(err)
		}
	}
}
