package image

import (
	"archive/tar"
	"bytes"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

// skeleton writes the template's own layer as a tar: the same bytes for the
// same host.
func (s *Store) skeleton(plan hostPlan) (layer []byte, notes []string, err error) {
	w := &skeletonWriter{made: map[string]bool{}}
	w.tar = tar.NewWriter(&w.buf)

	passwd, group := s.hostFile("etc/passwd"), s.hostFile("etc/group")
	files := accountFiles(passwd, group, s.hostShell())
	maps.Copy(files, settings())

	for _, d := range skeletonDirs {
		uid := 0
		if d.owner != "" {
			uid = userID(files["etc/passwd"].text, d.owner)
		}
		w.add(&tar.Header{Typeflag: tar.TypeDir, Name: d.name + "/", Mode: d.mode, Uid: uid}, nil)
	}
	w.add(&tar.Header{Typeflag: tar.TypeDir, Name: "home/agent/", Mode: 0o755, Uid: agentID, Gid: agentID}, nil)
	for _, b := range plan.binds {
		w.parents(b.Target[1:] + "/.")
	}
	for _, name := range slices.Sorted(maps.Keys(plan.links)) {
		w.add(&tar.Header{Typeflag: tar.TypeSymlink, Name: name, Linkname: plan.links[name], Mode: 0o777}, nil)
	}
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		w.add(&tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: f.mode, Gid: f.gid, Size: int64(len(f.text))}, []byte(f.text))
	}
	for _, t := range plan.taken {
		if w.made[t.name] && t.st.Mode&unix.S_IFMT != unix.S_IFDIR {
			continue // the template's own goes first
		}
		w.take(s.host.root, t)
	}
	if w.err == nil {
		w.err = w.tar.Close()
	}
	return w.buf.Bytes(), w.notes, w.err
}

func (s *Store) hostFile(name string) []byte {
	b, err := os.ReadFile(filepath.Join(s.host.root, name))
	if err != nil {
		return nil // the template then has its own accounts only
	}
	return b
}

func (s *Store) hostShell() string {
	if _, err := os.Stat(filepath.Join(s.host.root, "usr/bin/bash")); err == nil {
		return "/bin/bash"
	}
	return "/bin/sh"
}

type skeletonWriter struct {
	buf   bytes.Buffer
	tar   *tar.Writer
	made  map[string]bool
	notes []string
	err   error // the first
}

func (w *skeletonWriter) add(h *tar.Header, content []byte) {
	if w.err != nil {
		return
	}
	if h.ModTime.IsZero() {
		h.ModTime = time.Unix(0, 0)
	}
	h.Format = tar.FormatPAX
	name := path.Clean(h.Name)
	w.parents(name)
	w.made[name] = true
	if w.buf.Len()+len(content) > maxSkeleton {
		w.err = hostUnreadable(fmt.Errorf("its /etc has more than %d bytes of the kind that is copied", maxSkeleton))
		return
	}
	if w.err = w.tar.WriteHeader(h); w.err == nil {
		_, w.err = w.tar.Write(content)
	}
}

// parents describes the folders above name that nothing has described.
func (w *skeletonWriter) parents(name string) {
	dir := path.Dir(name)
	if dir == "." || dir == "/" || w.made[dir] {
		return
	}
	w.add(&tar.Header{Typeflag: tar.TypeDir, Name: dir + "/", Mode: 0o755}, nil)
}

// take copies one thing of the host. Owners become root, the mode keeps no
// set-id bit.
func (w *skeletonWriter) take(root string, t taken) {
	full := filepath.Join(root, t.name)
	h := &tar.Header{Name: t.name, Mode: int64(t.st.Mode & 0o755), ModTime: time.Unix(t.st.Mtim.Sec, 0)}
	switch t.st.Mode & unix.S_IFMT {
	case unix.S_IFDIR:
		// Without its time, which only says when something in it came or went.
		h.Typeflag, h.Name, h.ModTime = tar.TypeDir, t.name+"/", time.Time{}
		if !w.made[t.name] {
			w.add(h, nil)
		}
	case unix.S_IFLNK:
		target, err := os.Readlink(full)
		if err != nil {
			w.leave(t.name, "it went away")
			return
		}
		h.Typeflag, h.Linkname, h.Mode = tar.TypeSymlink, target, 0o777
		w.add(h, nil)
	case unix.S_IFREG:
		content, err := readTaken(full, t.st)
		switch {
		case err != nil:
			w.leave(t.name, err.Error())
		case holdsSecret(content, t.guarded):
			w.leave(t.name, "it seems to hold a credential")
		default:
			h.Typeflag, h.Size = tar.TypeReg, int64(len(content))
			w.add(h, content)
		}
	}
}

func (w *skeletonWriter) leave(name, why string) {
	w.notes = append(w.notes, "left out /"+cleanText(name)+": "+why)
}

// readTaken reads the file that was planned and no other.
func readTaken(full string, want unix.Stat_t) ([]byte, error) {
	f, err := os.OpenFile(full, os.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK, 0)
	if err != nil {
		return nil, fmt.Errorf("it cannot be read")
	}
	defer f.Close()
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil || st.Ino != want.Ino || st.Dev != want.Dev || st.Mode != want.Mode {
		return nil, fmt.Errorf("it changed meanwhile")
	}
	if st.Size > maxTakenFile {
		return nil, fmt.Errorf("it is larger than %d bytes", maxTakenFile)
	}
	b, err := io.ReadAll(io.LimitReader(f, maxTakenFile))
	if err != nil {
		return nil, fmt.Errorf("it cannot be read")
	}
	return b, nil
}

// The forms in which a credential may stand in a file that has been chosen as
// harmless: a private key, a URL with a password, and in package managers'
// settings any password or token that is set.
var privateKey = []byte("PRIVATE KEY-----")

var credentials = sync.OnceValue(func() (forms struct{ urlPassword, urlUser, setting *regexp.Regexp }) {
	forms.urlPassword = regexp.MustCompile(`[a-zA-Z]://[^/\s:@"'<>]*:[^/\s@"'<>]+@`)
	forms.urlUser = regexp.MustCompile(`[a-zA-Z]://[^/\s@"'<>]+@`)
	forms.setting = regexp.MustCompile(`(?im)^[^#\n/]*(password|passwd|passphrase|token|secret|sslclientkey)[\w-]*\s*[=:"\s]\s*\S`)
	return forms
})

func holdsSecret(content []byte, guarded bool) bool {
	forms := credentials()
	return bytes.Contains(content, privateKey) || forms.urlPassword.Match(content) ||
		guarded && (forms.urlUser.Match(content) || forms.setting.Match(content))
}
