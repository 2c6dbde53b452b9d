package run

import (
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/workspace"
)

// scratchDir is the folder of a run that is gone when it is over: home, tmp,
// and layers of what is thrown away.
const scratchDir = "scratch"

// place is where a run keeps its layers: its folder, or a disk of limited size
// in it. The disk is seen by this process through a descriptor, and by the
// child that builds the sandbox at a path where only that child sees it.
type place struct{ here, there string }

func (p place) join(rel string) place {
	return place{filepath.Join(p.here, rel), filepath.Join(p.there, rel)}
}

// builder turns what the sandbox may see into the driver's words. Folders that
// it needs on the host are made below the run's folder.
type builder struct {
	name      string   // of the sandbox
	staying   *Staying // for a sandbox that stays; nil for a run
	req       Request
	host      *Host
	run       *folder.Run
	plan      *workspace.Plan
	unchanged bool                          // once it has ended: nothing was left in the layers
	view      func() (hostview.View, error) // for the process level: what it sees of the host
	base      place
	owner     owner
	root      driver.Root
	made      int // layers made so far
	inUse     []*os.File
	opened    *control.Opened // the way out, nil without one
	home      string          // the kept home's folder on the host, "" for one that is thrown away
}

type owner struct{ uid, gid int }

// scratch makes a folder of the run that is thrown away, owned by the
// workspace's owner.
func (b *builder) scratch(name string, mode os.FileMode) (place, error) {
	p := b.base.join(scratchDir).join(name)
	if err := os.MkdirAll(p.here, 0o700); err != nil {
		return p, storage(err)
	}
	if err := b.own(p.here); err != nil {
		return p, err
	}
	if err := os.Chmod(p.here, mode); err != nil {
		return p, storage(err)
	}
	return p, nil
}

func (b *builder) own(path string) error {
	if os.Geteuid() != 0 {
		return nil
	}
	if err := os.Lchown(path, b.owner.uid, b.owner.gid); err != nil {
		return storage(err)
	}
	return nil
}

// layer makes the two folders of an overlay whose writes are thrown away. Its
// upper folder looks like like.
func (b *builder) layer(like string) (string, error) {
	b.made++
	dir, err := b.scratch("layer-"+strconv.Itoa(b.made), 0o700)
	if err != nil {
		return "", err
	}
	fi, err := os.Stat(like)
	if err != nil {
		return "", storage(err)
	}
	for _, name := range []string{"upper", "work"} {
		if err := os.Mkdir(filepath.Join(dir.here, name), 0o700); err != nil {
			return "", storage(err)
		}
	}
	upper := filepath.Join(dir.here, "upper")
	if os.Geteuid() == 0 {
		uid, gid := ownerOf(fi)
		if err := os.Chown(upper, uid, gid); err != nil {
			return "", storage(err)
		}
	}
	if err := os.Chmod(upper, fi.Mode().Perm()|fi.Mode()&os.ModeSticky); err != nil {
		return "", storage(err)
	}
	return dir.there, nil
}

// workspaces places the folders that are seen copy-on-write.
func (b *builder) workspaces() []driver.Place {
	var places []driver.Place
	for i, r := range b.plan.Roots {
		p := driver.Place{Target: r.Path, IsDir: true, HostIDs: true}
		switch {
		case b.req.Writable:
			p.Kind, p.Source = driver.Bind, r.Path
			places = append(places, p)
			places = append(places, b.guarded(i, r.Path)...)
			continue
		case r.Mode == folder.ModeCopy:
			p.Kind, p.Source = driver.Scratch, workspace.Tree(b.base.there, r)
		default:
			p.Kind = driver.CoW
			p.Overlay = &driver.Overlay{Lower: []string{r.Path}, HostIDs: true}
			if b.staying == nil {
				p.Overlay.Layer = filepath.Join(b.base.there, r.Layer)
			}
		}
		places = append(places, p)
	}
	return places
}

// processRoot is the root of the process level: the host's view. The folders
// that it needs in any case are made before it waits for that.
func (b *builder) processRoot() (view hostview.View, err error) {
	home, err := b.homeFolder()
	if err != nil {
		return view, err
	}
	tmp, err := b.scratch("tmp", 0o777|os.ModeSticky)
	if err != nil {
		return view, err
	}
	if view, err = b.view(); err != nil {
		return view, err
	}
	hasTmp := false
	for _, e := range view.Entries {
		p := driver.Place{Target: e.Target, Source: e.Source, Content: e.Content, Mode: e.Mode, IsDir: e.IsDir, ReadOnly: e.ReadOnly, HostIDs: true}
		switch e.Kind {
		case hostview.KindDir:
			if e.Target == "/tmp" {
				p.Kind, p.Source, p.IsDir, hasTmp = driver.Scratch, tmp.there, true, true
				break
			}
			p.Kind, p.Owned = driver.Dir, within(e.Target, view.HomeDir)
		case hostview.KindFile:
			p.Kind, p.Owned = driver.File, within(e.Target, view.HomeDir)
		case hostview.KindSymlink:
			p.Kind, p.Source, p.Owned = driver.Symlink, e.Link, within(e.Target, view.HomeDir)
		case hostview.KindBind:
			p.Kind = driver.Bind
			if content, mode, ok := smallEtcFile(e); ok {
				p.Kind, p.Content, p.Mode = driver.File, content, mode
				break
			}
			if e.CopyOnWrite {
				p.Kind, p.ReadOnly = driver.CoW, false
				p.Overlay = &driver.Overlay{Lower: []string{e.Source}, HostIDs: true}
			}
		case hostview.KindMask:
			p.Kind = driver.Mask
		case hostview.KindHome:
			p.Kind, p.Source, p.IsDir = driver.Scratch, home, true
		case hostview.KindWorkspace:
			b.root.Places = append(b.root.Places, b.workspaces()...)
			continue
		}
		b.root.Places = append(b.root.Places, p)
	}
	if !hasTmp {
		// Before everything that may lie below it, such as a workspace.
		b.root.Places = slices.Insert(b.root.Places, 0, driver.Place{Kind: driver.Scratch, Target: "/tmp", Source: tmp.there, IsDir: true, HostIDs: true})
	}
	return view, b.keep()
}

// smallEtc is the size up to which a file of /etc is copied. A mount costs
// several times what writing a few pages does, at the start and again at the end.
const smallEtc = 64 << 10

// smallEtcFile reads a file of /etc that is quicker to copy than to mount.
func smallEtcFile(e hostview.Entry) (content []byte, mode os.FileMode, ok bool) {
	if e.IsDir || !e.ReadOnly || !within(e.Target, "/etc") {
		return nil, 0, false
	}
	// Without an os.File, which would be offered to the poller: there are dozens of them.
	fd, err := unix.Open(e.Source, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, 0, false
	}
	defer unix.Close(fd)
	var st unix.Stat_t
	if err := unix.Fstat(fd, &st); err != nil || st.Mode&unix.S_IFMT != unix.S_IFREG || st.Size > smallEtc {
		return nil, 0, false
	}
	content = make([]byte, st.Size+1)
	n := 0
	for n < len(content) {
		m, err := unix.Read(fd, content[n:])
		if err != nil {
			return nil, 0, false
		}
		if m == 0 {
			return content[:n], os.FileMode(st.Mode & 0o777), true
		}
		n += m
	}
	return nil, 0, false // it grew: show it as it is
}

// homeFolder gives the folder that becomes HOME.
func (b *builder) homeFolder() (string, error) {
	if b.req.Home == "" {
		p, err := b.scratch("home", 0o700)
		return p.there, err
	}
	dir, err := b.host.Folder.Home(b.plan.Dir, b.req.Home)
	if err != nil {
		return "", err
	}
	// The last command in it may have closed it to itself.
	if err := os.Chmod(dir, 0o700); err != nil {
		return "", storage(err)
	}
	b.home = dir
	return dir, b.own(dir)
}

// containerRoot is a root file system of its own.
func (b *builder) containerRoot() error {
	r := b.req.Rootfs
	base, err := b.layered("/", r.Layers, r.Layers[len(r.Layers)-1])
	if err != nil {
		return err
	}
	b.root.Base = base
	for _, bind := range r.Binds {
		overlay, err := b.layered(bind.Target, []string{bind.Source}, bind.Source)
		if err != nil {
			return err
		}
		b.root.Places = append(b.root.Places, driver.Place{Kind: driver.CoW, Target: bind.Target, Overlay: overlay})
	}
	names := "bailey " + b.name
	if b.staying != nil {
		names = b.staying.Hostname
	}
	b.root.Places = append(b.root.Places,
		driver.Place{Kind: driver.File, Target: "/etc/hostname", Content: []byte(b.name + "\n"), Mode: 0o644},
		driver.Place{Kind: driver.File, Target: "/etc/hosts", Content: []byte("127.0.0.1\tlocalhost\n::1\tlocalhost\n127.0.1.1\t" + names + "\n"), Mode: 0o644},
		driver.Place{Kind: driver.File, Target: "/etc/resolv.conf", Content: hostview.ResolvConf(b.nameServer()), Mode: 0o644},
	)
	if b.staying != nil {
		b.root.Places[len(b.root.Places)-3].Content = []byte(names + "\n")
		b.root.Places = append(b.root.Places, driver.Place{Kind: driver.File, Target: "/etc/machine-id", Content: []byte(b.staying.MachineID + "\n"), Mode: 0o444})
	}
	if b.req.Home != "" {
		home, err := b.homeFolder()
		if err != nil {
			return err
		}
		b.root.Places = append(b.root.Places, driver.Place{Kind: driver.Scratch, Target: "/root", Source: home, IsDir: true, HostIDs: true})
	}
	shown := b.workspaces()
	for _, m := range b.req.Mounts {
		fi, err := os.Stat(m.Source)
		if err != nil {
			return bailey.Errorf(bailey.CodeNotFound, "mount "+m.Source, "", "%w", err)
		}
		source, err := filepath.EvalSymlinks(m.Source)
		if err != nil {
			return bailey.Errorf(bailey.CodeNotFound, "mount "+m.Source, "", "%w", err)
		}
		shown = append(shown, driver.Place{Kind: driver.Bind, Target: path.Clean(m.Target), Source: source,
			IsDir: fi.IsDir(), ReadOnly: !m.Writable, HostIDs: true})
	}
	// What lies below another comes after it, or would be covered by it.
	slices.SortStableFunc(shown, func(a, b driver.Place) int { return len(a.Target) - len(b.Target) })
	b.root.Places = append(b.root.Places, shown...)
	return b.keep()
}

// layered is a writable view of folders of a root file system, which looks like
// the last of them.
func (b *builder) layered(target string, lower []string, like string) (*driver.Overlay, error) {
	if b.staying != nil {
		return b.staying.Overlay(target, lower, false)
	}
	layer, err := b.layer(like)
	return &driver.Overlay{Lower: lower, Layer: layer}, err
}

// containerEnv is the environment of a container: the image's, what a terminal
// needs of the caller's, and what was asked for.
func (b *builder) containerEnv() ([]string, error) {
	env := map[string]string{"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root", "TMPDIR": "/tmp"}
	caller := map[string]string{}
	for _, e := range b.host.Env {
		if name, value, ok := strings.Cut(e, "="); ok {
			caller[name] = value
		}
	}
	for _, name := range []string{"TERM", "COLORTERM", "LANG", "TZ", "NO_COLOR"} {
		if v, ok := caller[name]; ok {
			env[name] = v
		}
	}
	for _, e := range b.req.Rootfs.Config.Env {
		if name, value, ok := strings.Cut(e, "="); ok {
			env[name] = value
		}
	}
	for _, e := range b.req.SetEnv {
		name, value, ok := strings.Cut(e, "=")
		if err := hostview.CheckEnvName(name); err != nil {
			return nil, err
		}
		if !ok {
			if value, ok = caller[name]; !ok {
				continue
			}
		}
		env[name] = value
	}
	env["BAILEY"] = "1"
	list := make([]string, 0, len(env))
	for name, value := range env {
		list = append(list, name+"="+value)
	}
	slices.Sort(list)
	return list, nil
}

func within(p, dir string) bool {
	return p == dir || strings.HasPrefix(p, strings.TrimSuffix(dir, "/")+"/")
}

func storage(err error) error {
	return bailey.Errorf(bailey.CodeStorage, "prepare the sandbox's folders", "", "%w", err)
}
