package build

import (
	"archive/tar"
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/registry"
	"github.com/bailey-sandbox/bailey/internal/image/unpack"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// bench is a machine of nothing but an overlay and chroot, for root.
type bench struct {
	dir     string
	ran     []string
	secrets map[string]string
	during  func() // called when a step runs
	files   map[string]string
}

func (b *bench) Run(ctx context.Context, s Step) (bailey.End, error) {
	b.ran = append(b.ran, strings.Join(s.Args, " "))
	work, err := os.MkdirTemp(b.dir, "step-")
	if err != nil {
		return bailey.End{}, err
	}
	defer os.RemoveAll(work)
	root := filepath.Join(work, "root")
	for _, d := range []string{"root", "upper", "work"} {
		if err := os.Mkdir(filepath.Join(work, d), 0o755); err != nil {
			return bailey.End{}, err
		}
	}
	lower := make([]string, len(s.Layers))
	for i, l := range s.Layers {
		lower[len(lower)-1-i] = l
	}
	if err := unix.Mount("overlay", root, "overlay", 0, "lowerdir="+strings.Join(lower, ":")+",upperdir="+work+"/upper,workdir="+work+"/work"); err != nil {
		return bailey.End{}, err
	}
	defer unix.Unmount(root, unix.MNT_DETACH) // or the folder cannot be removed, which the test sees
	env := s.Env
	for _, m := range s.Mounts {
		at := filepath.Join(root, m.Target)
		source := m.Source
		switch m.Kind {
		case Secret:
			m.Content = []byte(b.secrets[m.Source])
			if m.Env != "" {
				env = append(env, m.Env+"="+b.secrets[m.Source])
			}
			if m.Target == "" {
				continue
			}
			fallthrough
		case File:
			source = filepath.Join(work, filepath.Base(m.Target))
			if err := os.WriteFile(source, m.Content, m.Mode); err != nil {
				return bailey.End{}, err
			}
		}
		if m.IsDir {
			err = os.MkdirAll(at, 0o755)
		} else if err = os.MkdirAll(filepath.Dir(at), 0o755); err == nil {
			err = os.WriteFile(at, nil, 0o644)
		}
		if err == nil {
			err = unix.Mount(source, at, "", unix.MS_BIND, "")
		}
		if err != nil {
			return bailey.End{}, err
		}
		defer unix.Unmount(at, unix.MNT_DETACH)
	}
	cmd := exec.CommandContext(ctx, "/bin/busybox", append([]string{"env"}, s.Args...)...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = env, s.Dir, s.Output, s.Output
	cmd.SysProcAttr = &syscall.SysProcAttr{Chroot: root, Credential: &syscall.Credential{Uid: uint32(s.User.UID), Gid: uint32(s.User.GID)}}
	if b.during != nil {
		b.during()
	}
	err = cmd.Run()
	if ctx.Err() != nil {
		return bailey.End{}, ctx.Err()
	}
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		return bailey.End{Reason: bailey.EndExit, ExitCode: exit.ExitCode()}, nil
	}
	if err != nil {
		return bailey.End{}, err
	}
	return bailey.End{Reason: bailey.EndExit}, piped(func(w io.Writer) error { return tarUpper(w, work+"/upper") }, func(r io.Reader) error { return s.Layer(ctx, r, nil) })
}

func (b *bench) Fetch(_ context.Context, url string, w io.Writer) error {
	content, ok := b.files[url]
	if !ok {
		return errors.New(http.StatusText(404))
	}
	_, err := io.WriteString(w, content)
	return err
}

// tarUpper writes an overlay's upper folder as a layer.
func tarUpper(w io.Writer, dir string) error {
	tw := tar.NewWriter(w)
	err := filepath.WalkDir(dir, func(p string, d fs.DirEntry, err error) error {
		if err != nil || p == dir {
			return err
		}
		name := strings.TrimPrefix(p, dir+"/")
		info, err := d.Info()
		if err != nil {
			return err
		}
		st := info.Sys().(*syscall.Stat_t)
		if info.Mode()&fs.ModeCharDevice != 0 {
			return tw.WriteHeader(&tar.Header{Typeflag: tar.TypeReg, Name: filepath.Join(filepath.Dir(name), ".wh."+d.Name())})
		}
		link, _ := os.Readlink(p) // empty for what is none
		h, err := tar.FileInfoHeader(info, link)
		if err != nil {
			return err
		}
		h.Name, h.Uid, h.Gid, h.Uname, h.Gname = name, int(st.Uid), int(st.Gid), "", ""
		if err := tw.WriteHeader(h); err != nil || !info.Mode().IsRegular() {
			return err
		}
		f, err := os.Open(p)
		if err != nil {
			return err
		}
		defer f.Close()
		_, err = io.Copy(tw, f)
		return err
	})
	return errors.Join(err, tw.Close())
}

// hands do in this process what is done in others.
type hands struct {
	store  *image.Store
	config registry.Config
}

func (h hands) Layer(ctx context.Context, r io.Reader) (image.Layer, error) {
	return h.store.Add(ctx, r)
}

func (h hands) Unpack(ctx context.Context, r io.Reader, dir string) error {
	return image.Unpack(ctx, r, dir, unpack.DefaultLimits)
}

func (h hands) Pull(ctx context.Context, ref string, each func(api.Progress)) (image.Pulled, error) {
	if p, ok := h.store.Named(ref); ok {
		return p, nil
	}
	c := registry.New(h.config)
	defer c.Close()
	return h.store.Pull(ctx, c, ref, each)
}

// site is a place to build at: a store with the image "base", which has busybox.
type site struct {
	t     testing.TB
	dir   string
	store *image.Store
	*bench
	log strings.Builder
}

func newSite(t testing.TB) *site {
	t.Helper()
	dir := t.TempDir()
	store, err := image.Open(filepath.Join(dir, "images"), unpack.DefaultLimits)
	if err != nil {
		t.Fatal(err)
	}
	s := &site{t: t, dir: dir, store: store, bench: &bench{dir: dir, secrets: map[string]string{}, files: map[string]string{}}}
	if err := os.Mkdir(filepath.Join(dir, "caches"), 0o700); err != nil {
		t.Fatal(err)
	}
	return s
}

// base makes an image of the machine's busybox.
func (s *site) base() {
	s.t.Helper()
	testneeds.Tool(s.t, "busybox")
	box, err := os.ReadFile("/usr/bin/busybox")
	if err != nil {
		s.t.Fatal(err)
	}
	files := map[string]string{"bin/busybox": string(box), "etc/passwd": "root:x:0:0::/root:/bin/sh\napp:x:1000:1001::/home/app:/bin/sh\n", "etc/group": "root:x:0:\nstaff:x:50:\n"}
	for _, n := range []string{"sh", "cat", "ls", "rm", "mkdir", "echo", "touch", "id", "env", "test", "chmod", "true", "false", "cp", "stat", "head", "pwd", "sleep"} {
		files["bin/"+n] = "->busybox"
	}
	files["usr/lib/"] = ""
	files["lib"] = "->usr/lib"
	files["tmp/"] = "1777"
	l, err := s.store.Add(context.Background(), bytes.NewReader(tarball(files)))
	if err != nil {
		s.t.Fatal(err)
	}
	if _, err := s.store.Write(context.Background(), "base", emptyConfig(), []image.Layer{l}); err != nil {
		s.t.Fatal(err)
	}
}

// tarball makes a tar: "->" begins a link's text, a name with a slash at its end
// is a folder, whose content is its mode.
func tarball(files map[string]string) []byte {
	var b bytes.Buffer
	tw := tar.NewWriter(&b)
	for name, content := range files {
		h := &tar.Header{Name: name, Mode: 0o755, Size: int64(len(content)), Typeflag: tar.TypeReg}
		if link, ok := strings.CutPrefix(content, "->"); ok {
			h.Typeflag, h.Linkname, h.Size = tar.TypeSymlink, link, 0
		} else if strings.HasSuffix(name, "/") {
			h.Typeflag, h.Size = tar.TypeDir, 0
			if content == "1777" {
				h.Mode = 0o1777
			}
		}
		if err := tw.WriteHeader(h); err != nil {
			panic(err)
		}
		if h.Size > 0 {
			if _, err := io.WriteString(tw, content); err != nil {
				panic(err)
			}
		}
	}
	if err := tw.Close(); err != nil {
		panic(err)
	}
	return b.Bytes()
}

// build builds a context.
func (s *site) build(spec api.BuildSpec, files map[string]string) (image.Pulled, error) {
	s.t.Helper()
	work, err := os.MkdirTemp(s.dir, "work-")
	if err != nil {
		s.t.Fatal(err)
	}
	defer os.RemoveAll(work)
	s.ran = nil
	s.log.Reset()
	return Build(context.Background(), Options{
		Spec: spec, Context: bytes.NewReader(tarball(files)), Name: "out", Store: s.store, Hands: hands{store: s.store}, Machine: s.bench,
		Work: work, Caches: filepath.Join(s.dir, "caches"),
		Each: func(p api.Progress) { s.log.WriteString(p.Step + p.Log) },
	})
}

func (s *site) must(spec api.BuildSpec, files map[string]string) image.Pulled {
	s.t.Helper()
	p, err := s.build(spec, files)
	if err != nil {
		s.t.Fatalf("%v\n%s", err, s.log.String())
	}
	return p
}
