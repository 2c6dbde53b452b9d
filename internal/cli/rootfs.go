package cli

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// program finds another program of Bailey: beside this one.
func program(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		if p := filepath.Join(filepath.Dir(self), name); executable(p) {
			return p, nil
		}
	}
	return "", bailey.Errorf(bailey.CodeNotAvailable, "start "+name, "build all of Bailey with ./scripts/build", "it is not beside %s", self)
}

func executable(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}

// prepareRoot has baileyd prepare a root file system. The code for images is
// in that program, so that this one starts fast and an image is taken apart in
// a process of its own.
func prepareRoot(f *folder.Folder, image, template string) (*rootfs.Root, error) {
	source := image
	switch {
	case image != "" && template != "":
		return nil, bailey.Errorf(bailey.CodeUsage, "choose a root file system", "leave one of them out", "--image and --template exclude each other")
	case template != "" && template != "host":
		return nil, bailey.Errorf(bailey.CodeNotFound, "use the template "+template, "use --template host", "there is no such template")
	case image == "":
		source = "host"
	}
	daemon, err := program("baileyd")
	if err != nil {
		return nil, err
	}
	cache, err := f.Cache()
	if err != nil {
		return nil, err
	}
	cmd := exec.Command(daemon, "image", "prepare", "--json", "--store", filepath.Join(cache, "images"), source)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); err != nil {
		return nil, imageError(source, out.Bytes(), errs.String(), err)
	}
	root, err := rootfs.Parse(out.Bytes())
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, "prepare "+source, "", "%w", err)
	}
	return &root, nil
}

func imageError(source string, out []byte, errs string, err error) error {
	text := strings.TrimPrefix(strings.TrimSpace(errs), "baileyd: ")
	if text == "" {
		return bailey.Errorf(bailey.CodeImageInvalid, "prepare the root file system "+source, "", "%w", err)
	}
	return bailey.Errorf(bailey.CodeImageInvalid, "prepare the root file system "+source, "", "%s", text)
}
