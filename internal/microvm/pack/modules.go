package pack

import (
	"bytes"
	"debug/elf"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// wanted are the modules that a virtual machine's start needs.
var wanted = []string{"virtio_mmio", "virtio_console", "virtio_net", "virtio_rng", "fuse"}

// file is one file of a kit.
type file struct {
	name string
	mode fs.FileMode
	data []byte
}

// modulesOf reads the wanted modules of a kernel, and what they need, in the
// order in which they can be loaded.
func modulesOf(dir string) ([]file, error) {
	paths := map[string]string{}
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if name, ok := strings.CutSuffix(filepath.Base(p), ".ko"); ok {
			paths[plainName(name)] = p
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	var order []string
	var out []file
	var add func(name string) error
	add = func(name string) error {
		if slices.Contains(order, name) {
			return nil
		}
		if paths[name] == "" {
			return fmt.Errorf("the kernel in %s has no module %s", dir, name)
		}
		b, err := os.ReadFile(paths[name])
		if err != nil {
			return err
		}
		needs, err := needsOf(b)
		if err != nil {
			return fmt.Errorf("module %s: %w", name, err)
		}
		for _, n := range needs {
			if err := add(n); err != nil {
				return err
			}
		}
		out = append(out, file{fmt.Sprintf("%02d-%s.ko", len(order), name), 0o644, b})
		order = append(order, name)
		return nil
	}
	for _, name := range wanted {
		if err := add(name); err != nil {
			return nil, err
		}
	}
	return out, nil
}

func plainName(name string) string { return strings.ReplaceAll(name, "-", "_") }

// needsOf gives the names of the modules that one needs.
func needsOf(module []byte) ([]string, error) {
	f, err := elf.NewFile(bytes.NewReader(module))
	if err != nil {
		return nil, err
	}
	section := f.Section(".modinfo")
	if section == nil {
		return nil, errors.New("it is no module")
	}
	info, err := section.Data()
	if err != nil {
		return nil, err
	}
	for _, entry := range strings.Split(string(info), "\x00") {
		if list, ok := strings.CutPrefix(entry, "depends="); ok && list != "" {
			names := strings.Split(list, ",")
			for i := range names {
				names[i] = plainName(names[i])
			}
			return names, nil
		}
	}
	return nil, nil
}
