package peer

import (
	"encoding/json"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// What is said to be equal has to be asked for.
func TestBundle(t *testing.T) {
	dir := t.TempDir()
	limits := bailey.Limits{Memory: 1 << 30, Pids: 512}
	if err := bundle(dir, "group", []string{"/bin/echo", "hi"}, limits); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "config.json"))
	if err != nil {
		t.Fatal(err)
	}
	var c struct {
		Process struct {
			Args            []string
			NoNewPrivileges bool
		}
		Linux struct {
			CgroupsPath string
			Namespaces  []struct{ Type string }
			Resources   struct {
				Memory struct{ Limit int64 }
				Pids   struct{ Limit int64 }
			}
			Seccomp struct {
				DefaultAction string
				Syscalls      []struct{ Names []string }
			}
		}
	}
	if err := json.Unmarshal(text, &c); err != nil {
		t.Fatal(err)
	}
	names := 0
	for _, s := range c.Linux.Seccomp.Syscalls {
		names += len(s.Names)
	}
	if len(c.Linux.Namespaces) != 7 || c.Linux.CgroupsPath != "/group" || !c.Process.NoNewPrivileges || c.Linux.Resources.Memory.Limit != limits.Memory ||
		c.Linux.Resources.Pids.Limit != limits.Pids || c.Linux.Seccomp.DefaultAction != "SCMP_ACT_ERRNO" || names < 300 || c.Process.Args[1] != "hi" {
		t.Errorf("%d names in %s", names, text)
	}
}
