package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

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
	// It may take minutes; it must not outlive who asked. The signal is sent
	// when the thread ends that started it, so that thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		return nil, imageError(source, errs.Bytes(), err)
	}
	root, err := rootfs.Parse(out.Bytes())
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, "prepare "+source, "", "%w", err)
	}
	return &root, useLayers(&root, f)
}

// useLayers marks the layers of the store as being in use, for as long as this
// process lives: whoever removes layers takes the lock first.
func useLayers(root *rootfs.Root, f *folder.Folder) error {
	for _, l := range root.Layers {
		if !strings.HasPrefix(l, f.Path()+"/") {
			continue // a folder of the user's own, used in place
		}
		dir, err := os.Open(filepath.Dir(l))
		if err == nil {
			err = unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB)
			inUse = append(inUse, dir)
		}
		if err != nil {
			return bailey.Errorf(bailey.CodeStorage, "use the layer "+l, "try again", "%w", err)
		}
	}
	return nil
}

// inUse keeps the locks: a descriptor that nothing refers to would be closed.
var inUse []*os.File

// imageError passes on what baileyd says went wrong: one JSON object.
func imageError(source string, errs []byte, err error) error {
	var be bailey.Error
	if json.Unmarshal(errs, &be) == nil && be.Code != "" {
		return &be
	}
	return bailey.Errorf(bailey.CodeImageInvalid, "prepare the root file system "+source, "", "%w: %s", err, bytes.TrimSpace(errs))
}
