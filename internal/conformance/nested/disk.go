//go:build linux

package nested

import (
	"bytes"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"

	"github.com/bailey-sandbox/bailey/internal/conformance/nested/plan"
)

// diskVersion changes when what systemDisk puts on a disk does.
const diskVersion = "2"

// systemDisk gives the disk with programs and modules, from the folder of those
// that were made before if it is there.
func systemDisk(cache string, k Kernel) (string, error) {
	have, err := database()
	if err != nil {
		return "", err
	}
	list, err := closure(have, wanted())
	if err != nil {
		return "", err
	}
	sum := sha256.New()
	fmt.Fprintln(sum, diskVersion, k.Release)
	for _, p := range list {
		fmt.Fprintln(sum, p.name, p.version)
	}
	disk := filepath.Join(cache, fmt.Sprintf("system-%x.ext4", sum.Sum(nil)[:8]))
	if exists(disk) {
		return disk, nil
	}
	if err := os.MkdirAll(cache, 0o755); err != nil {
		return "", err
	}
	tree, err := os.MkdirTemp(cache, "tree-")
	if err != nil {
		return "", err
	}
	defer os.RemoveAll(tree)
	if err := os.Chmod(tree, 0o755); err != nil {
		return "", err
	}
	if err := copyPackages(list, tree); err != nil {
		return "", err
	}
	if err := settle(tree, k); err != nil {
		return "", err
	}
	// Old ones are of no use to anybody.
	old, _ := filepath.Glob(filepath.Join(cache, "system-*.ext4"))
	for _, p := range old {
		os.Remove(p)
	}
	return disk, makeDisk(disk, tree, 6<<10)
}

// settle writes what no package has: users, modules, places to mount.
func settle(tree string, k Kernel) error {
	for _, dir := range []string{"proc", "sys", "dev", "run", "tmp", "root", "var/tmp", "var/lib", "nested", "etc", "usr/local/bin", strings.TrimPrefix(plan.UserHome, "/")} {
		if err := os.MkdirAll(filepath.Join(tree, dir), 0o755); err != nil {
			return err
		}
	}
	if os.Geteuid() == 0 {
		if err := os.Chown(filepath.Join(tree, plan.UserHome), plan.UserID, plan.UserID); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"etc/passwd": "root:x:0:0:root:/root:/bin/bash\ndaemon:x:1:1:daemon:/usr/sbin:/usr/sbin/nologin\nnobody:x:65534:65534:nobody:/nonexistent:/usr/sbin/nologin\n" +
			fmt.Sprintf("%s:x:%d:%d::%s:/bin/sh\n", plan.UserName, plan.UserID, plan.UserID, plan.UserHome),
		"etc/group":       fmt.Sprintf("root:x:0:\ntty:x:5:\nnogroup:x:65534:\n%s:x:%d:\n", plan.UserName, plan.UserID),
		"etc/shadow":      "",
		"etc/subuid":      plan.UserName + ":100000:65536\n",
		"etc/subgid":      plan.UserName + ":100000:65536\n",
		"etc/hostname":    "nested\n",
		"etc/hosts":       "127.0.0.1 localhost\n::1 localhost\n127.0.1.1 nested\n",
		"etc/resolv.conf": "",
	} {
		p := filepath.Join(tree, name)
		os.Remove(p)
		if err := os.WriteFile(p, []byte(content), 0o644); err != nil {
			return err
		}
	}
	for _, name := range []string{"etc/ld.so.cache", "etc/ld.so.conf", "etc/nsswitch.conf", "etc/ssl/certs/ca-certificates.crt"} {
		os.Remove(filepath.Join(tree, name))
		if err := copyPath("/"+name, tree); err != nil {
			return err
		}
	}
	modules := filepath.Join(tree, "usr/lib/modules", k.Release)
	if err := os.MkdirAll(filepath.Dir(modules), 0o755); err != nil {
		return err
	}
	return errors.Join(command("cp", "-a", k.Modules(), modules), command("depmod", "-b", filepath.Join(tree, "usr"), k.Release))
}

// workDisk makes the disk of one run.
func workDisk(disk, tree string, p plan.Plan) error {
	b, err := json.MarshalIndent(p, "", " ")
	if err != nil {
		return err
	}
	if err := os.WriteFile(filepath.Join(tree, filepath.Base(plan.File)), b, 0o644); err != nil {
		return err
	}
	return makeDisk(disk, tree, 4<<10)
}

// makeDisk makes a file with an ext4 of so many MiB, which takes no more room than
// its files need.
func makeDisk(disk, tree string, mib int) error {
	f, err := os.CreateTemp(filepath.Dir(disk), ".disk-") // another run may make the same
	if err != nil {
		return err
	}
	part := f.Name()
	f.Close()
	defer os.Remove(part)
	cmd := exec.Command("mke2fs", "-q", "-t", "ext4", "-F", "-d", tree, part, fmt.Sprint(mib, "M"))
	if os.Geteuid() != 0 { // whose files are root's in the machine
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER,
			UidMappings: []syscall.SysProcIDMap{{HostID: os.Geteuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getegid(), Size: 1}}}
	}
	cmd.Env = append(os.Environ(), "PATH="+os.Getenv("PATH")+":/usr/sbin:/sbin")
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("mke2fs: %w: %s", err, bytes.TrimSpace(out))
	}
	return os.Rename(part, disk)
}

func command(name string, args ...string) error {
	cmd := exec.Command(name, args...)
	if cmd.Err != nil {
		cmd = exec.Command("/usr/sbin/"+name, args...)
	}
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w: %s", name, err, bytes.TrimSpace(out))
	}
	return nil
}
