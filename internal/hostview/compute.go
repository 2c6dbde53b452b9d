package hostview

import (
	"crypto/rand"
	"encoding/hex"
	"path"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// systemFolders are the folders of programs and libraries that every sandbox
// at the process level sees, as they are on the host: folders or links.
var systemFolders = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}

// Compute gives the view of the host for one sandbox. It reads names, types,
// modes and links below in.Root, and nothing else; the answer depends on those
// and on in, and on chance only for an absent in.MachineID.
//
// It fails with the code usage for a malformed variable or user, with
// not_found for a workspace or mount that does not exist, and as [CheckMount]
// does for a mount that may not be. Folders of PATH and toolchains never make
// it fail: what cannot be shown is left out with a note. Whether the
// workspace may be one is for [CheckWorkspace].
func Compute(in Input) (View, error) {
	if in.Hostname == "" {
		in.Hostname = "bailey"
	}
	if in.MachineID == "" {
		var id [16]byte
		rand.Read(id[:]) // never fails
		in.MachineID = hex.EncodeToString(id[:])
	}
	if in.Username == "" {
		in.Username = "user"
		if in.UID == 0 {
			in.Username = "root"
		}
	}
	if strings.ContainsAny(in.Username, ":/\n\x00") || in.UID < 0 || in.GID < 0 {
		return View{}, bailey.Errorf(bailey.CodeUsage, "describe the sandbox's user", "", "%s with ids %d and %d is not a user", quote(in.Username), in.UID, in.GID)
	}
	t := newTree(in.Root)
	b := &builder{
		in: in, t: t, deny: newHostDeny(t, in.Home, in.BaileyHome),
		wants: make(map[string]Entry, 128), noted: make(map[Note]bool), roots: make(map[string][]string),
		rootLinks: make(map[string][]link), shown: make(map[string]bool), lists: make(map[string][]string), host: parseEnv(in.Env),
	}
	ws, wsLinks, err := b.placeWorkspace()
	if err != nil {
		return View{}, err
	}

	b.showSystem()
	b.placeHome()
	b.links(wsLinks)
	folders := b.searchPath(b.host["PATH"])
	b.commandCaches(folders)
	b.showEtc()
	b.shell = b.chooseShell()
	b.generateEtc()
	if err := b.userMounts(); err != nil {
		return View{}, err
	}
	entries, err := b.normalise()
	if err != nil {
		return View{}, err
	}
	at := make(map[string]Entry, len(entries))
	for _, e := range entries {
		at[e.Target] = e
	}
	inside := newInsider(t, at)
	var searchPath []string
	for _, p := range folders {
		if inside.isDir(p) {
			searchPath = append(searchPath, p)
		} else {
			b.note(p, "left out of PATH: it is not inside")
		}
	}
	if len(searchPath) == 0 {
		searchPath = strings.Split(defaultPath, ":")
	}
	env, err := b.environ(inside, searchPath)
	if err != nil {
		return View{}, err
	}
	return View{Entries: entries, Env: env, Notes: b.notes, Home: b.homeValue, HomeDir: b.home, Workspace: ws}, nil
}

// placeWorkspace shows the workspace, if there is one.
func (b *builder) placeWorkspace() (ws string, links []link, err error) {
	if b.in.Workspace == "" {
		b.ws = "/\x00" // no path lies in it
		return "", nil, nil
	}
	ws, fi, links, err := b.t.resolve(b.in.Workspace)
	if err != nil || !path.IsAbs(b.in.Workspace) || !fi.IsDir() {
		return "", nil, bailey.Errorf(bailey.CodeNotFound, "show the workspace "+quote(b.in.Workspace), "name a folder that exists", "there is no such folder")
	}
	b.ws = ws
	b.wants[ws] = Entry{Kind: KindWorkspace, Target: ws, Source: ws, IsDir: true, Why: "workspace"}
	return ws, links, nil
}

// showSystem shows the system's own folders.
func (b *builder) showSystem() {
	for _, p := range systemFolders {
		fi := b.t.lstat(p)
		if fi == nil || within(p, b.ws) {
			continue
		}
		real, target, links, err := b.t.resolve(p)
		switch {
		case err != nil || !target.IsDir():
			b.note(p, "left out: it is not a folder")
		case len(links) == 0:
			b.put(Entry{Kind: KindBind, Target: p, Source: p, IsDir: true, ReadOnly: true, Why: "the system's programs"})
		case b.visible(real):
			b.links(links)
		default:
			b.put(Entry{Kind: KindBind, Target: p, Source: real, IsDir: true, ReadOnly: true, Why: "the system's programs"})
		}
	}
	for _, p := range secretSystemPaths {
		if real, _, _, err := b.t.resolve(p); err == nil && real == p && b.visible(p) {
			b.mask(p, "it may hold credentials")
		}
	}
	if b.deny.home != "" {
		for _, p := range systemFolders { // an account such as games, whose home is /usr/games
			if within(b.deny.home, p) {
				for _, q := range b.deny.inside(b.t, p) {
					b.mask(q, "it may hold credentials or private data")
				}
			}
		}
	}
	// The shell of a system whose programs live in a store.
	for _, p := range []string{"/bin/sh", "/usr/bin/env"} {
		if real, _, _, err := b.t.resolve(p); err == nil {
			if root := b.storeRoot(real); root != "" && !b.visible(real) {
				b.bind(root, "the system's programs", false)
			}
		}
	}
}

// placeHome chooses where the home is. A home that is no folder of its own, or
// lies where nothing can be placed, is replaced.
func (b *builder) placeHome() {
	home := path.Clean(b.in.Home)
	real, _, links, err := b.t.resolve(home)
	if err != nil {
		// An account's home need not exist; its parents may be links still.
		real, links = home, nil
		if parent, _, l, err := b.t.resolve(path.Dir(home)); err == nil {
			real, links = path.Join(parent, path.Base(home)), l
		}
	}
	own := "/home/" + b.in.Username
	if b.in.UID == 0 {
		own = "/root"
	}
	usable := path.IsAbs(home) && real != "/" && !underAny(real, reservedTargets) && !underAny(real, systemFolders) &&
		!underAny(real, []string{"/etc", "/nix/store", "/gnu/store"}) && real != "/tmp"
	switch {
	case usable && within(real, b.ws):
		// The workspace holds the home: its owner said so.
	case !usable:
		b.note("HOME", "is "+own+" inside, because "+quote(b.in.Home)+" cannot be a home folder there")
		home, real, links = own, own, nil
		if within(real, b.ws) {
			break
		}
		fallthrough
	default:
		b.put(Entry{Kind: KindHome, Target: real, IsDir: true, Mode: 0o700, Why: "empty home"})
		if !b.links(links) {
			home = real
		}
	}
	b.home, b.homeValue = real, home
	if !usable {
		// From here on, guard the home that PATH may lead into.
		b.deny = newDenyList(real, b.deny.bailey)
	}
}

// chooseShell gives the caller's shell if it is inside, else a usual one.
func (b *builder) chooseShell() string {
	in := newInsider(b.t, b.wants)
	for _, p := range []string{b.host["SHELL"], "/bin/bash", "/usr/bin/bash"} {
		if path.IsAbs(p) && in.exists(path.Clean(p)) {
			return p
		}
	}
	return "/bin/sh"
}

// userMounts adds what --mount asks for. A later mount on the same target
// replaces an earlier one; of two that differ only in their mode, read-only wins.
func (b *builder) userMounts() error {
	for _, m := range b.in.Mounts {
		if err := checkMount(b.t, b.deny, m, b.in.IUnderstand); err != nil {
			return err
		}
		source, fi, _, err := b.t.resolve(m.Source)
		if err != nil {
			return bailey.Errorf(bailey.CodeNotFound, "mount "+quote(m.Source), "", "%w", err)
		}
		target, _, rest := newInsider(b.t, b.wants).find(path.Clean(m.Target))
		target = path.Join(target, rest)
		if e, ok := b.wants[target]; ok && (e.Kind == KindHome || e.Kind == KindWorkspace) {
			return bailey.Errorf(bailey.CodeUsage, "mount "+quote(m.Source)+" at "+quote(m.Target), "name another target", "that is the sandbox's %s", e.Kind)
		}
		e := Entry{Kind: KindBind, Target: target, Source: source, IsDir: fi.IsDir(), ReadOnly: !m.Writable, Why: "--mount", user: true}
		if old, ok := b.wants[target]; ok && old.user {
			if old.Source == e.Source {
				e.ReadOnly = e.ReadOnly || old.ReadOnly
				b.note(target, "is mounted twice; it is read-only if one of them is")
			} else {
				b.note(target, "is mounted twice; the last one counts")
			}
		}
		b.wants[target] = e
		// What was covered or chosen below it belonged to what it replaces.
		for p, o := range b.wants {
			if p != target && within(p, target) && !o.user && o.Kind != KindWorkspace && o.Kind != KindHome {
				delete(b.wants, p)
			}
		}
		if fi.IsDir() && !b.in.IUnderstand {
			for _, q := range b.deny.inside(b.t, source) {
				b.maskAt(q, path.Join(target, below(q, source)), "it may hold credentials")
			}
		}
	}
	return nil
}
