package build

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/image"
	"github.com/bailey-sandbox/bailey/internal/image/view"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// look gives the files of what was built, and its configuration.
func (s *site) look(p image.Pulled) (*view.View, v1.Config) {
	s.t.Helper()
	cf, _, err := s.store.Image(p.Name.Image)
	if err != nil {
		s.t.Fatal(err)
	}
	return view.New(p.Root.Layers, p.Root.IDs), cf.Config
}

func wantFile(t *testing.T, v *view.View, name, want string) {
	t.Helper()
	if got, err := v.ReadFile(name, 1<<20); err != nil || string(got) != want {
		t.Errorf("%s is %q, want %q (%v)", name, got, want, err)
	}
}

func wantGone(t *testing.T, v *view.View, name string) {
	t.Helper()
	if _, err := v.Lstat(name); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("%s is there (%v)", name, err)
	}
}

func TestWhatInstructionsDo(t *testing.T) {
	s := newSite(t)
	s.must(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM scratch\nCOPY a /\n", "a": "x"}) // as any user
	p := s.must(api.BuildSpec{Args: map[string]string{"V": "2"}}, map[string]string{"Dockerfile": `# syntax=x
ARG BASE=scratch
FROM ${BASE} AS first
ARG V=1
ARG W
ENV A=a B="b $V" C=${W:-none}
ENV D=$A-$B
LABEL l="$V" m=n
MAINTAINER somebody
COPY <<EOF /text
v is $V and "quoted"
EOF
COPY <<'EOF' /raw
v is $V
EOF
EXPOSE 80 8000-8001/udp
VOLUME /data
STOPSIGNAL SIGQUIT
SHELL ["/bin/busybox", "sh", "-c"]
ENTRYPOINT ["/e", "$A"]
CMD run $A
HEALTHCHECK --interval=5s --retries=2 CMD ["/h"]
WORKDIR /w/x
WORKDIR y
USER 7:8
ONBUILD COPY extra /
`})
	v, c := s.look(p)
	wantFile(t, v, "/text", "v is 2 and \"quoted\"\n")
	wantFile(t, v, "/raw", "v is $V\n")
	if e, err := v.Lstat("/w/x/y"); err != nil || !e.Mode.IsDir() {
		t.Errorf("the working folder: %v", err)
	}
	want := v1.Config{
		Env: []string{"A=a", "B=b 2", "C=none", "D=a-b 2"}, Labels: map[string]string{"l": "2", "m": "n"},
		ExposedPorts: map[string]struct{}{"80/tcp": {}, "8000/udp": {}, "8001/udp": {}}, Volumes: map[string]struct{}{"/data": {}},
		StopSignal: "SIGQUIT", Shell: []string{"/bin/busybox", "sh", "-c"}, Entrypoint: []string{"/e", "$A"}, Cmd: []string{"/bin/busybox", "sh", "-c", "run $A"},
		Healthcheck: &v1.HealthConfig{Test: []string{"CMD", "/h"}, Interval: 5e9, Retries: 2}, WorkingDir: "/w/x/y", User: "7:8", OnBuild: []string{"COPY extra /"},
	}
	if !reflect.DeepEqual(c, want) {
		t.Errorf("configuration\n%+v, want\n%+v", c, want)
	}
	// What is built on it does what ONBUILD says, once.
	p = s.must(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM out\nENTRYPOINT [\"/f\"]", "extra": "e"})
	v, c = s.look(p)
	wantFile(t, v, "/extra", "e")
	if c.OnBuild != nil || c.Cmd != nil || c.User != "7:8" {
		t.Errorf("configuration %+v", c)
	}
	if len(s.ran) > 0 {
		t.Errorf("it ran %q", s.ran)
	}
}

func TestCopies(t *testing.T) {
	s := newSite(t)
	s.must(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM scratch\nCOPY . /\n", "usr/bin/x": "x", "bin": "->usr/bin", "tmp/": "1777",
		"etc/passwd": "app:x:1000:1001::/home/app:/bin/sh\n", "etc/group": "staff:x:50:\n"})
	files := map[string]string{
		"dir/a": "a", "dir/b/c": "c", "dir/l": "->a", "one.txt": "1", "two.txt": "2", "skip/me": "s", "skip/keep": "k", "bin/y": "y", ".dockerignore": "skip\n!skip/keep\n**/*.log\nDockerfile\n", "dir/x.log": "log",
		"add.tar": string(tarball(map[string]string{"in/tar": "t"})), "plain.gz": "no gzip at all", "up": "->../../../../etc/passwd",
	}
	for what, c := range map[string]struct {
		step string
		want map[string]string // "" for a file that is not there
	}{
		"a file":                   {"COPY one.txt /x", map[string]string{"/x": "1"}},
		"into a new folder":        {"COPY one.txt /n/e/w/", map[string]string{"/n/e/w/one.txt": "1"}},
		"into a folder that is":    {"COPY one.txt /tmp", map[string]string{"/tmp/one.txt": "1"}},
		"several":                  {"COPY *.txt /t/", map[string]string{"/t/one.txt": "1", "/t/two.txt": "2"}},
		"what a folder holds":      {"COPY dir /d", map[string]string{"/d/a": "a", "/d/b/c": "c", "/d/l": "a", "/d/x.log": ""}},
		"without the ignored":      {"COPY . /all", map[string]string{"/all/skip/keep": "k", "/all/skip/me": "", "/all/Dockerfile": "", "/all/one.txt": "1"}},
		"without the excluded":     {"COPY --exclude=b dir /d", map[string]string{"/d/a": "a", "/d/b/c": ""}},
		"through a link":           {"COPY bin /bin/", map[string]string{"/usr/bin/y": "y", "/bin/x": "x"}},
		"over a link to a folder":  {"COPY . /", map[string]string{"/usr/bin/y": "y", "/bin/x": "x"}},
		"a link out, inside":       {"COPY up /p", nil},
		"relative":                 {"WORKDIR /r\nCOPY one.txt here", map[string]string{"/r/here": "1"}},
		"an archive, unpacked":     {"ADD add.tar /a/", map[string]string{"/a/in/tar": "t", "/a/add.tar": ""}},
		"an archive, as it is":     {"ADD --unpack=false add.tar /a/", map[string]string{"/a/in/tar": ""}},
		"COPY leaves archives":     {"COPY add.tar /a/", map[string]string{"/a/in/tar": ""}},
		"what only looks like one": {"ADD plain.gz /a/", map[string]string{"/a/plain.gz": "no gzip at all"}},
		"a URL":                    {"ADD http://host.test/f/file.tar /u/", map[string]string{"/u/file.tar": "from afar"}},
		"a URL under another name": {"ADD http://host.test/f/file.tar /u", map[string]string{"/u": "from afar"}},
		"from a stage, by number":  {"COPY --from=0 /etc/group /g", map[string]string{"/g": "staff:x:50:\n"}},
		"from a stage, by name":    {"COPY --from=first /bin/x /g", map[string]string{"/g": "x"}},
		"from an image":            {"COPY --from=out2 /etc/group /g", map[string]string{"/g": "staff:x:50:\n"}},
		"a heredoc into a folder":  {"COPY <<one <<two /h/\n1\none\n2\ntwo\n", map[string]string{"/h/one": "1\n", "/h/two": "2\n"}},
	} {
		t.Run(what, func(t *testing.T) {
			s.t = t
			s.files = map[string]string{"http://host.test/f/file.tar": "from afar"}
			if n, ok := s.store.NameOf("out"); ok && n.Layers == 1 {
				n.Name = "out2"
				if err := s.store.SetName(n); err != nil {
					t.Fatal(err)
				}
			}
			files["Dockerfile"] = "FROM out2 AS first\nFROM out2\n" + c.step
			p, err := s.build(api.BuildSpec{}, files)
			if c.want == nil {
				if bailey.CodeOf(err) != bailey.CodeUsage || !strings.Contains(err.Error(), "Dockerfile:3") {
					t.Errorf("got %v", err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			v, _ := s.look(p)
			for name, content := range c.want {
				if content == "" {
					wantGone(t, v, name)
				} else {
					wantFile(t, v, name, content)
				}
			}
			if e, err := v.Lstat("/tmp"); err != nil || e.Mode&fs.ModeSticky == 0 || e.Mode.Perm() != 0o777 {
				t.Errorf("/tmp is %v, %v", e.Mode, err)
			}
		})
	}
}

func TestOwnersAndModes(t *testing.T) {
	s := newSite(t)
	p := s.must(api.BuildSpec{}, map[string]string{"Dockerfile": `FROM scratch
COPY etc /etc
COPY --chown=app:staff --chmod=4750 f /a/b
COPY --chown=12 f /c
ADD t.tar /
USER app
WORKDIR /home/app
`, "f": "f", "etc/passwd": "app:x:1000:1001::/home/app:/bin/sh\n", "etc/group": "staff:x:50:\n", "t.tar": string(tarball(map[string]string{"t": ""}))})
	v, _ := s.look(p)
	for name, want := range map[string][3]int{"/a": {1000, 50, 0o755}, "/a/b": {1000, 50, 0o4750}, "/c": {12, 12, 0o755}, "/home/app": {1000, 1001, 0o755}, "/etc": {0, 0, 0o755}} {
		if e, err := v.Lstat(name); err != nil || e.UID != want[0] || e.GID != want[1] || bits(e.Mode) != int64(want[2]) {
			t.Errorf("%s has %d:%d %o, want %d (%v)", name, e.UID, e.GID, bits(e.Mode), want, err)
		}
	}
}

func TestWhatIsRefused(t *testing.T) {
	s := newSite(t)
	s.must(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM scratch\nCOPY f /\n", "f": "f"})
	for what, c := range map[string]struct {
		file string
		spec api.BuildSpec
		code bailey.Code
		says string
	}{
		"nothing":                 {"", api.BuildSpec{}, bailey.CodeUsage, "read"},
		"no FROM":                 {"COPY f /", api.BuildSpec{}, bailey.CodeUsage, ""},
		"an unknown instruction":  {"FROM scratch\nFLY away", api.BuildSpec{}, bailey.CodeUsage, "Dockerfile:2"},
		"an unknown flag":         {"FROM scratch\nCOPY --fly=1 f /", api.BuildSpec{}, bailey.CodeUsage, "Dockerfile:2"},
		"another platform":        {"FROM --platform=linux/s390x out", api.BuildSpec{}, bailey.CodeNotAvailable, "Dockerfile:1"},
		"the host template":       {"FROM host", api.BuildSpec{}, bailey.CodeNotAvailable, "cannot be part"},
		"an image of no registry": {"FROM nowhere", api.BuildSpec{}, bailey.CodeUsage, "which registry"},
		"an argument of nobody":   {"FROM $X", api.BuildSpec{}, bailey.CodeUsage, "names nothing"},
		"a later stage":           {"FROM out\nCOPY --from=later f /g\nFROM out AS later", api.BuildSpec{Target: "0"}, bailey.CodeUsage, "only later"},
		"no such target":          {"FROM out", api.BuildSpec{Target: "x"}, bailey.CodeUsage, "no such stage"},
		"an empty image":          {"FROM scratch\nENV a=b", api.BuildSpec{}, bailey.CodeUsage, "no files"},
		"a file that is not":      {"FROM out\n\nCOPY g /", api.BuildSpec{}, bailey.CodeUsage, "Dockerfile:3"},
		"a file out of it":        {"FROM out\nCOPY ../../etc/hostname /", api.BuildSpec{}, bailey.CodeUsage, "Dockerfile:2"},
		"several into a file":     {"FROM out\nCOPY f Dockerfile /x", api.BuildSpec{}, bailey.CodeUsage, ""},
		"--parents":               {"FROM out\nCOPY --parents f /x/", api.BuildSpec{}, bailey.CodeNotAvailable, "Dockerfile:2"},
		"a user of nobody":        {"FROM out\nUSER ann", api.BuildSpec{}, bailey.CodeUsage, "no user"},
		"ssh":                     {"FROM out\nRUN --mount=type=ssh x", api.BuildSpec{}, bailey.CodeNotAvailable, "Dockerfile:2"},
		"privileges":              {"FROM out\nRUN --security=insecure x", api.BuildSpec{}, bailey.CodeNotAvailable, "sandbox"},
		"the host's network":      {"FROM out\nRUN --network=host x", api.BuildSpec{}, bailey.CodeNotAvailable, "gate"},
		"a needed secret":         {"FROM out\nRUN --mount=type=secret,id=k,required x", api.BuildSpec{}, bailey.CodeUsage, "no such secret"},
		"a mount over all":        {"FROM out\nRUN --mount=type=tmpfs,target=/ x", api.BuildSpec{}, bailey.CodeUsage, "root"},
		"git":                     {"FROM out\nADD https://host.test/x.git /x", api.BuildSpec{}, bailey.CodeNotAvailable, "git clone"},
		"another checksum":        {"FROM out\nADD --checksum=sha256:" + strings.Repeat("0", 64) + " http://host.test/f /x", api.BuildSpec{}, bailey.CodeBuildFailed, "checksum"},
		"an odd mode":             {"FROM out\nCOPY --chmod=u+x f /x", api.BuildSpec{}, bailey.CodeUsage, "octal"},
		"a port too far":          {"FROM out\nEXPOSE 70000", api.BuildSpec{}, bailey.CodeUsage, "70000"},
		"a whiteout":              {"FROM out\nCOPY <<EOF /.wh.f\nEOF\n", api.BuildSpec{}, bailey.CodeUsage, ".wh."},
	} {
		t.Run(what, func(t *testing.T) {
			s.t = t
			s.files = map[string]string{"http://host.test/f": "f"}
			_, err := s.build(c.spec, map[string]string{"Dockerfile": c.file, "f": "f"})
			if bailey.CodeOf(err) != c.code || !strings.Contains(err.Error(), c.says) {
				t.Errorf("got %v", err)
			}
		})
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "images/tmp/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestStepsRunAndAreKept(t *testing.T) {
	testneeds.Root(t, "mounts overlays")
	s := newSite(t)
	s.base()
	s.secrets["npm"] = "placeholder-for-npm"
	file := `FROM base AS one
ARG V
RUN echo "v=$V" > /v && mkdir -p /new/dir && rm /bin/head
RUN ["/bin/sh", "-c", "id -u > /who; pwd >> /who"]
RUN <<EOF
echo first > /doc
echo "$V" >> /doc
EOF
RUN <<EOF
#!/bin/cat
shown
EOF
USER app
WORKDIR /home/app
RUN id -u > mine; echo $HOME >> mine
USER root
RUN --mount=type=cache,target=/cache echo x >> /cache/n && cp /cache/n /count
RUN --mount=type=secret,id=npm,env=TOKEN --mount=type=secret,id=npm,target=/deep/er/secret cat /deep/er/secret && test "$TOKEN" = "$(cat /deep/er/secret)"
RUN --mount=type=bind,source=f,target=/ctx/f --mount=type=tmpfs,target=/scratch cat /ctx/f > /f && touch /scratch/x && touch /ctx/other
RUN --mount=type=bind,from=base,source=/etc,target=/other cat /other/passwd > /pw
FROM base
COPY --from=one /v /doc /who /home/app/mine /count /f /pw /out/
RUN rm /out/count
`
	files := map[string]string{"Dockerfile": file, "f": "from the context"}
	spec := api.BuildSpec{Args: map[string]string{"V": "7", "unasked": "1"}, Secrets: []string{"npm@host.test"}}
	first := s.must(spec, files)
	v, _ := s.look(first)
	for name, want := range map[string]string{"v": "v=7\n", "doc": "first\n7\n", "who": "0\n/\n", "mine": "1000\n/home/app\n", "f": "from the context"} {
		wantFile(t, v, "/out/"+name, want)
	}
	wantGone(t, v, "/out/count")
	for _, want := range []string{"shown\n", "placeholder-for-npm", "argument unasked"} {
		if !strings.Contains(s.log.String(), want) {
			t.Errorf("the log has no %q:\n%s", want, s.log.String())
		}
	}
	if len(s.ran) != 10 {
		t.Errorf("ran %d: %q", len(s.ran), s.ran)
	}
	// What was mounted is in no layer, and neither are the folders that led there.
	one := s.must(api.BuildSpec{Args: spec.Args, Secrets: spec.Secrets, Target: "one"}, files)
	v, _ = s.look(one)
	for _, name := range []string{"/cache", "/deep", "/scratch", "/dev", "/bin/head", "/ctx/f"} {
		wantGone(t, v, name)
	}
	wantFile(t, v, "/ctx/other", "")
	if err := filepath.WalkDir(filepath.Join(s.dir, "images"), func(p string, d fs.DirEntry, err error) error {
		if err == nil && d.Type().IsRegular() {
			b, rerr := os.ReadFile(p)
			if rerr != nil || bytes.Contains(b, []byte("placeholder-for-npm")) {
				t.Errorf("%s has the secret's placeholder (%v)", p, rerr)
			}
		}
		return err
	}); err != nil {
		t.Error(err)
	}

	// The same again runs nothing and gives the same image.
	if again := s.must(spec, files); again.Name.Digest != first.Name.Digest || len(s.ran) != 0 {
		t.Errorf("again: %s for %s, ran %q", again.Name.Digest, first.Name.Digest, s.ran)
	}
	// Another argument runs what follows it; another file only what sees it.
	other := api.BuildSpec{Args: map[string]string{"V": "8"}, Secrets: spec.Secrets}
	s.must(other, files)
	if len(s.ran) != 10 {
		t.Errorf("with another argument ran %q", s.ran)
	}
	files["f"] = "changed"
	v, _ = s.look(s.must(spec, files))
	wantFile(t, v, "/out/f", "changed")
	if len(s.ran) != 3 {
		t.Errorf("with another file ran %q", s.ran)
	}
	files["unseen"] = "x"
	if s.must(spec, files); len(s.ran) != 0 {
		t.Errorf("with an unseen file ran %q", s.ran)
	}
	noCache := spec
	noCache.NoCache = true
	last := s.must(noCache, files)
	if len(s.ran) != 10 {
		t.Errorf("without cache ran %q", s.ran)
	}
	// A layer that is gone is made again, and the log says why.
	_, layers, err := s.store.Image(last.Name.Image)
	if err != nil {
		t.Fatal(err)
	}
	gone := layers[len(layers)-1]
	if err := os.RemoveAll(filepath.Dir(s.store.Dir(gone.DiffID))); err != nil {
		t.Fatal(err)
	}
	if s.must(spec, files); len(s.ran) != 1 || !strings.Contains(s.log.String(), "its layer is gone") {
		t.Errorf("ran %q\n%s", s.ran, s.log.String())
	}
}

func TestAStepThatFails(t *testing.T) {
	testneeds.Root(t, "mounts overlays")
	s := newSite(t)
	s.base()
	_, err := s.build(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM base\nRUN true\nRUN echo why it failed; touch /x; exit 3\n"})
	if bailey.CodeOf(err) != bailey.CodeBuildFailed || !strings.Contains(err.Error(), "Dockerfile:3") || !strings.Contains(err.Error(), "status 3") || !strings.Contains(err.Error(), "why it failed") {
		t.Errorf("got %v", err)
	}
	if _, ok := s.store.NameOf("out"); ok {
		t.Error("there is an image")
	}
	// What came before it is kept.
	s.must(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM base\nRUN true\nRUN touch /y\n"})
	if len(s.ran) != 1 {
		t.Errorf("ran %q", s.ran)
	}
}

func TestABuildIsBrokenOff(t *testing.T) {
	testneeds.Root(t, "mounts overlays")
	s := newSite(t)
	s.base()
	ctx, cancel := context.WithCancel(context.Background())
	s.during = cancel
	work := t.TempDir()
	_, err := Build(ctx, Options{Name: "out", Store: s.store, Hands: hands{store: s.store}, Machine: s.bench, Work: work, Caches: filepath.Join(s.dir, "caches"),
		Context: bytes.NewReader(tarball(map[string]string{"Dockerfile": "FROM base\nRUN --mount=type=cache,target=/c,sharing=locked sleep 1000\n"}))})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "images/tmp/*")); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestWhatBuildsNeedIsNotCollected(t *testing.T) {
	s := newSite(t)
	p := s.must(api.BuildSpec{}, map[string]string{"Dockerfile": "FROM scratch\nCOPY f /\n", "f": "f"})
	release, err := s.store.Hold()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := s.store.Collect(nil, farFuture, false); bailey.CodeOf(err) != bailey.CodeBusy {
		t.Errorf("while a build goes on: %v", err)
	}
	release()
	kept := func() bool { _, ok := s.store.Root(p.Name.Image, ""); return ok }
	collect := func(keep map[string]bool, dry bool) []string {
		t.Helper()
		gone, err := s.store.Collect(keep, farFuture, dry)
		if err != nil {
			t.Fatal(err)
		}
		var kinds []string
		for _, o := range gone {
			kinds = append(kinds, o.Kind)
		}
		slices.Sort(kinds)
		return kinds
	}
	if gone := collect(nil, false); !reflect.DeepEqual(gone, []string{"build step"}) || !kept() {
		t.Errorf("with a name: %q", gone)
	}
	if err := s.store.DropName("out"); err != nil {
		t.Fatal(err)
	}
	if gone := collect(map[string]bool{p.Name.Image: true}, false); len(gone) > 0 || !kept() {
		t.Errorf("in use: %q", gone)
	}
	// A sandbox's lock keeps a layer, whatever else is known.
	d, err := os.Open(filepath.Dir(p.Root.Layers[0]))
	if err != nil {
		t.Fatal(err)
	}
	if err := lockShared(d); err != nil {
		t.Fatal(err)
	}
	want := []string{"blob", "blob", "blob", "image", "layer"}
	if gone := collect(nil, true); !reflect.DeepEqual(gone, []string{"blob", "blob", "blob", "image"}) || !kept() {
		t.Errorf("only said: %q", gone)
	}
	d.Close()
	if gone := collect(nil, true); !reflect.DeepEqual(gone[:4], want[:4]) || !kept() {
		t.Errorf("only said: %q", gone)
	}
	if gone := collect(nil, false); !slices.Contains(gone, "image") || kept() {
		t.Errorf("collected: %q", gone)
	}
	if gone := collect(nil, false); len(gone) > 0 {
		t.Errorf("a second time: %q", gone)
	}
	if left, _ := filepath.Glob(filepath.Join(s.dir, "images/layers/*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

var farFuture = time.Now().Add(30 * 24 * time.Hour)

func lockShared(f *os.File) error { return unix.Flock(int(f.Fd()), unix.LOCK_SH) }
