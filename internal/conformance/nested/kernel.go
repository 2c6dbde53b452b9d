//go:build linux

package nested

import (
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// Kernel is a kernel as ./scripts/kernel unpacks it: boot/vmlinuz-RELEASE and
// lib/modules/RELEASE below one folder.
type Kernel struct {
	Dir, Release string
}

// FindKernel gives the kernel that lies in a folder.
func FindKernel(dir string) (Kernel, error) {
	images, err := filepath.Glob(filepath.Join(dir, "boot/vmlinuz-*"))
	if err != nil {
		return Kernel{}, err
	}
	if len(images) != 1 {
		return Kernel{}, fmt.Errorf("there are %d kernels in %s; ./scripts/kernel puts one there", len(images), dir)
	}
	return Kernel{dir, strings.TrimPrefix(filepath.Base(images[0]), "vmlinuz-")}, nil
}

// Image is the path of the kernel itself.
func (k Kernel) Image() string { return filepath.Join(k.Dir, "boot", "vmlinuz-"+k.Release) }

// Modules is the folder of its modules.
func (k Kernel) Modules() string { return filepath.Join(k.Dir, "lib/modules", k.Release) }

// early are the modules without which there is no disk and no port.
var early = []string{"virtio_pci", "virtio_blk", "virtio_console"}

// Early gives the paths of the early modules and of what they need, in the order
// in which they can be loaded.
func (k Kernel) Early() ([]string, error) {
	paths := map[string]string{}
	err := filepath.WalkDir(k.Modules(), func(p string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(p), ".ko"); ok {
			paths[moduleName(name)] = p
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var order []string
	var add func(name string) error
	add = func(name string) error {
		p := paths[name]
		if p == "" {
			return fmt.Errorf("the kernel in %s has no module %s", k.Dir, name)
		}
		if slices.Contains(order, p) {
			return nil
		}
		needs, err := needsOf(p)
		if err != nil {
			return err
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		order = append(order, p)
		return nil
	}
	for _, name := range early {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return order, nil
}

func moduleName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// needsOf reads the names of the modules that one needs.
func needsOf(module string) ([]string, error) {
	f, err := elf.Open(module)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", module, err)
	}
	defer f.Close()
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New(module + " is no module")
	}
	b, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, entry := range strings.Split(string(b), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			names := strings.Split(list, ",")
			for i := range names {
				names[i] = moduleName(names[i])
			}
			return names, nil
		}
	}
	return nil, nil
}

// exists says whether there is something at a path.
func exists(p string) bool {
	_, err := os.Lstat(p)
	return err == nil
}
