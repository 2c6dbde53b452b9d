package tool

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/bailey-sandbox/bailey/internal/image/rootfs"
)

// Tool is a baileyd and the data folder that it works in.
type Tool struct {
	Daemon string // path of baileyd
	Home   string // the data folder
}

// Line is a line of what `baileyd image pull --json` prints: how far it is, or at
// last what there is.
type Line struct {
	Progress *api.Progress `json:"progress,omitempty"`
	Pulled   *image.Pulled `json:"pulled,omitempty"`
}

// maxLine bounds one line of the tool's output in bytes: an image's labels and
// environment are in it.
const maxLine = 32 << 20

// Store is the folder of images.
func (t Tool) Store() string { return filepath.Join(t.Home, "images") }

// Prepare makes the root file system of a source on this host: see
// image.Store.Prepare.
func (t Tool) Prepare(ctx context.Context, source string) (rootfs.Root, error) {
	out, err := t.run(ctx, nil, nil, "prepare", "--", source)
	if err != nil {
		return rootfs.Root{}, err
	}
	root, err := rootfs.Parse(out)
	if err != nil {
		return root, nonsense(err)
	}
	return root, nil
}

// Pull fetches an image: see image.Store.Pull. each may be nil.
func (t Tool) Pull(ctx context.Context, ref string, each func(api.Progress)) (image.Pulled, error) {
	var p *image.Pulled
	_, err := t.run(ctx, nil, func(b []byte) error {
		var l Line
		if err := json.Unmarshal(b, &l); err != nil {
			return nonsense(err)
		}
		if l.Progress != nil && each != nil {
			each(*l.Progress)
		}
		if l.Pulled != nil {
			p = l.Pulled
		}
		return nil
	}, "pull", "--config", filepath.Join(t.Home, registry.ConfigFile), "--", ref)
	if err != nil {
		return image.Pulled{}, err
	}
	if p == nil {
		return image.Pulled{}, nonsense(errors.New("it does not say what it has pulled"))
	}
	if err := p.Root.Check(); err != nil {
		return image.Pulled{}, nonsense(err)
	}
	return *p, nil
}

// Layer adds a layer, an uncompressed tar, to the store.
func (t Tool) Layer(ctx context.Context, r io.Reader) (image.Layer, error) {
	var l image.Layer
	out, err := t.run(ctx, r, nil, "layer")
	if err == nil {
		if err = json.Unmarshal(out, &l); err != nil {
			err = nonsense(err)
		}
	}
	return l, err
}

// Import takes in an image from an OCI layout in a tar: see image.Store.Import.
func (t Tool) Import(ctx context.Context, r io.Reader) (image.Pulled, error) {
	var p image.Pulled
	out, err := t.run(ctx, r, nil, "import")
	if err != nil {
		return p, err
	}
	if err := json.Unmarshal(out, &p); err != nil {
		return p, nonsense(err)
	}
	if err := p.Root.Check(); err != nil {
		return p, nonsense(err)
	}
	return p, nil
}

// Unpack unpacks a tar: see image.Unpack.
func (t Tool) Unpack(ctx context.Context, r io.Reader, dir string) error {
	_, err := t.run(ctx, r, nil, "context", "--", dir)
	return err
}

// run runs the tool. line is called with each line, or else the output is given.
func (t Tool) run(ctx context.Context, in io.Reader, line func([]byte) error, args ...string) ([]byte, error) {
	args = append([]string{"image", args[0], "--json", "--store", t.Store()}, args[1:]...)
	cmd := exec.CommandContext(ctx, t.Daemon, args...)
	cmd.Dir = "/"
	cmd.Stdin = in
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 5 * time.Second
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // a person's interrupt is the daemon's to pass on
	errs := &tail{}
	cmd.Stderr = errs
	pipe, err := cmd.StdoutPipe()
	if err != nil {
		return nil, failed(err)
	}
	if err := cmd.Start(); err != nil {
		return nil, bailey.Errorf(bailey.CodeNotAvailable, "use an image", "build all of Bailey with ./scripts/build", "%w", err)
	}
	var out []byte
	lines := bufio.NewScanner(pipe)
	lines.Buffer(make([]byte, 64<<10), maxLine)
	for lines.Scan() {
		if line == nil {
			out = bytes.Clone(lines.Bytes())
		} else if lerr := line(lines.Bytes()); lerr != nil && err == nil {
			err = lerr
		}
	}
	if lines.Err() != nil && err == nil {
		err = nonsense(lines.Err())
	}
	_, _ = io.Copy(io.Discard, pipe) // what is too long must not block it
	werr := cmd.Wait()
	if ctx.Err() != nil {
		return nil, ctx.Err()
	}
	if werr == nil {
		return out, err
	}
	var own bailey.Error
	if json.Unmarshal(errs.last(), &own) == nil && own.Code != "" && own.What != "" {
		return nil, &own
	}
	return nil, failed(fmt.Errorf("%w: %q", werr, errs.b))
}

func failed(err error) error {
	return bailey.Errorf(bailey.CodeInternal, "use an image", "", "the tool for images failed: %w", err)
}

func nonsense(err error) error {
	return bailey.Errorf(bailey.CodeProtocol, "use an image", "", "the tool for images said something impossible: %w", err)
}

// tail keeps the end of what a program prints as errors.
type tail struct{ b []byte }

const maxTail = 64 << 10

func (t *tail) Write(p []byte) (int, error) {
	t.b = append(t.b, p...)
	if n := len(t.b) - maxTail; n > 0 {
		t.b = t.b[n:]
	}
	return len(p), nil
}

// last is the last line.
func (t *tail) last() []byte {
	b := bytes.TrimSpace(t.b)
	return b[bytes.LastIndexByte(b, '\n')+1:]
}
