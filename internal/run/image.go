package run

import (
	"bytes"
	"context"
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

// PrepareRoot has baileyd, the program that find finds, prepare a root file
// system: of an image (a folder, a tar or an OCI image layout), or of a template,
// of which there is one, host. With neither it is host. The code for images is in
// that program, so that this one starts fast and an image is taken apart in a
// process of its own.
func PrepareRoot(ctx context.Context, f *folder.Folder, find func() (daemon string, err error), image, template string) (*rootfs.Root, error) {
	source, err := rootSource(image, template)
	if err != nil {
		return nil, err
	}
	daemon, err := find()
	if err != nil {
		return nil, err
	}
	cache, err := f.Cache()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, daemon, "image", "prepare", "--json", "--store", filepath.Join(cache, "images"), source)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	// It may take minutes; it must not outlive who asked. The signal is sent
	// when the thread ends that started it, so that thread has to stay.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		if cause := context.Cause(ctx); cause != nil {
			return nil, bailey.Errorf(bailey.CodeBusy, "prepare the root file system "+source, "", "%w", cause)
		}
		return nil, imageError(source, errs.Bytes(), err)
	}
	root, err := rootfs.Parse(out.Bytes())
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeImageInvalid, "prepare "+source, "", "%w", err)
	}
	return &root, nil
}

func rootSource(image, template string) (source string, err error) {
	switch {
	case image != "" && template != "":
		return "", bailey.Errorf(bailey.CodeUsage, "choose a root file system", "leave one of them out", "an image and a template exclude each other")
	case template != "" && template != "host":
		return "", bailey.Errorf(bailey.CodeNotFound, "use the template "+template, "use the template host", "there is no such template")
	case image == "":
		return "host", nil
	}
	return image, nil
}

// imageError passes on what baileyd says went wrong: one JSON object.
func imageError(source string, errs []byte, err error) error {
	var be bailey.Error
	if json.Unmarshal(errs, &be) == nil && be.Code != "" {
		return &be
	}
	return bailey.Errorf(bailey.CodeImageInvalid, "prepare the root file system "+source, "", "%w: %s", err, bytes.TrimSpace(errs))
}

// useLayers marks the layers of the store as being in use, until leaveLayers:
// whoever removes layers takes the lock first.
func (b *builder) useLayers() error {
	for _, l := range b.req.Rootfs.Layers {
		if !strings.HasPrefix(l, b.host.Folder.Path()+"/") {
			continue // a folder of the user's own, used in place
		}
		dir, err := os.Open(filepath.Dir(l))
		if err == nil {
			b.inUse = append(b.inUse, dir)
			err = unix.Flock(int(dir.Fd()), unix.LOCK_SH|unix.LOCK_NB)
		}
		if err != nil {
			b.leaveLayers()
			return bailey.Errorf(bailey.CodeStorage, "use the layer "+l, "try again", "%w", err)
		}
	}
	return nil
}

func (b *builder) leaveLayers() {
	for _, dir := range b.inUse {
		dir.Close()
	}
	b.inUse = nil
}
