package pack

import (
	"debug/elf"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// The places of a Debian's libraries.
var libraryDirs = []string{"/lib/x86_64-linux-gnu", "/usr/lib/x86_64-linux-gnu", "/lib64", "/usr/lib64", "/lib", "/usr/lib"}

// monitorFiles are what the monitor reads beside its libraries.
var monitorFiles = []string{
	"/usr/lib/x86_64-linux-gnu/qemu/accel-tcg-x86_64.so",
	"/usr/share/qemu/pvh.bin", "/usr/share/qemu/linuxboot_dma.bin", "/usr/share/qemu/bios-microvm.bin", "/usr/share/qemu/qboot.rom",
	"/usr/share/seabios/bios-microvm.bin",
}

// monitorOf reads the monitor at a path with all that it needs, each file named by
// the path that it has on this host.
func monitorOf(program string) ([]file, error) {
	var out []file
	seen := map[string]bool{}
	// Files are named as they are asked for: links on the way are followed here.
	take := func(p string) ([]byte, error) {
		b, err := os.ReadFile(p)
		if err != nil || seen[p] {
			return b, err
		}
		seen[p] = true
		fi, err := os.Stat(p)
		if err != nil {
			return nil, err
		}
		out = append(out, file{p, fi.Mode().Perm() | 0o444, b})
		return b, nil
	}
	var need func(p string) error
	need = func(p string) error {
		if seen[p] {
			return nil
		}
		if _, err := take(p); err != nil {
			return err
		}
		f, err := elf.Open(p)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		defer f.Close()
		for _, prog := range f.Progs {
			if prog.Type == elf.PT_INTERP {
				name := make([]byte, prog.Filesz)
				if _, err := prog.ReadAt(name, 0); err != nil {
					return err
				}
				if _, err := take(strings.TrimRight(string(name), "\x00")); err != nil {
					return err
				}
			}
		}
		libs, err := f.ImportedLibraries()
		if err != nil {
			return err
		}
		dirs := slices.Clone(libraryDirs)
		for _, tag := range []elf.DynTag{elf.DT_RUNPATH, elf.DT_RPATH} {
			paths, _ := f.DynString(tag)
			for _, list := range paths {
				for _, dir := range strings.Split(list, ":") {
					dirs = append(dirs, strings.ReplaceAll(strings.ReplaceAll(dir, "${ORIGIN}", filepath.Dir(p)), "$ORIGIN", filepath.Dir(p)))
				}
			}
		}
		for _, lib := range libs {
			at := ""
			for _, dir := range dirs {
				if fi, err := os.Stat(filepath.Join(dir, lib)); err == nil && fi.Mode().IsRegular() {
					at = filepath.Join(dir, lib)
					break
				}
			}
			if at == "" {
				return fmt.Errorf("%s needs %s, which is nowhere", p, lib)
			}
			if err := need(at); err != nil {
				return err
			}
		}
		return nil
	}
	if err := need(program); err != nil {
		return nil, err
	}
	for _, p := range monitorFiles {
		if strings.HasSuffix(p, ".so") {
			if err := need(p); err != nil {
				return nil, err
			}
			continue
		}
		if _, err := take(p); err != nil && !os.IsNotExist(err) {
			return nil, err
		}
	}
	for i := range out {
		out[i].name = strings.TrimPrefix(out[i].name, "/")
	}
	slices.SortFunc(out, func(a, b file) int { return strings.Compare(a.name, b.name) })
	return out, nil
}
