package pack

import (
	"archive/tar"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
)

// Sources are what Pack takes.
type Sources struct {
	Kernel  string // a folder with one boot/vmlinuz-RELEASE and lib/modules/RELEASE
	Monitor string // the path of the monitor's program on this host
	Boot    string // the program bailey-boot
	Agent   string // the program bailey-init
}

// Pack writes a kit to a file, which is whole or not there.
func Pack(to string, s Sources) (kit.Manifest, error) {
	m := kit.Manifest{Version: kit.Version, Monitor: strings.TrimPrefix(s.Monitor, "/")}
	images, err := filepath.Glob(filepath.Join(s.Kernel, "boot/vmlinuz-*"))
	if err != nil || len(images) != 1 {
		return m, fmt.Errorf("%d kernels are in %s, not one: %w", len(images), s.Kernel, err)
	}
	m.Kernel = strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")
	image, err := os.ReadFile(images[0])
	if err != nil {
		return m, err
	}
	vmlinux, err := Vmlinux(image)
	if err != nil {
		return m, err
	}
	modules, err := modulesOf(filepath.Join(s.Kernel, "lib/modules", m.Kernel))
	if err != nil {
		return m, err
	}
	boot, err := os.ReadFile(s.Boot)
	if err != nil {
		return m, err
	}
	agent, err := os.ReadFile(s.Agent)
	if err != nil {
		return m, err
	}
	monitor, err := monitorOf(s.Monitor)
	if err != nil {
		return m, err
	}
	files := []file{{"vmlinux", 0o644, vmlinux}, {"initramfs", 0o644, initramfs(boot, agent, modules)}}
	for _, f := range monitor {
		files = append(files, file{"monitor/" + f.name, f.mode, f.data})
	}
	sum := sha256.New()
	for _, f := range files {
		fmt.Fprintf(sum, "%s %o %d\n", f.name, f.mode, len(f.data))
		sum.Write(f.data)
	}
	m.Digest = hex.EncodeToString(sum.Sum(nil))
	head, err := json.Marshal(m)
	if err != nil {
		return m, err
	}
	out, err := os.CreateTemp(filepath.Dir(to), ".kit-")
	if err != nil {
		return m, err
	}
	defer os.Remove(out.Name())
	defer out.Close()
	w := tar.NewWriter(out)
	for _, f := range append([]file{{"manifest.json", 0o644, head}}, files...) {
		if err := w.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: f.name, Mode: int64(f.mode), Size: int64(len(f.data)), Format: tar.FormatUSTAR}); err != nil {
			return m, err
		}
		if _, err := w.Write(f.data); err != nil {
			return m, err
		}
	}
	return m, errors.Join(w.Close(), out.Chmod(0o644), out.Sync(), out.Close(), os.Rename(out.Name(), to))
}
