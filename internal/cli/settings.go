package cli

import (
	"os"
	"path/filepath"
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/project"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// settle brings the flags and the project's file together and decides what
// follows from both.
func (f *runFlags) settle(inv *invocation, h *run.Host, ws string) error {
	wd, err := os.Getwd()
	if err != nil && f.Dir == "" {
		return nil // the run itself says what is wrong with the folder
	}
	user := project.Settings{
		Isolation: f.isolation, MinIsolation: f.min, Image: f.image, Template: f.template,
		Workdir: f.Workdir, Home: f.Home, Env: f.SetEnv, Limits: f.Limits, Copy: f.ForceCopy,
		Writable: f.writable, Apply: f.apply, Nested: f.Nested, IUnderstand: f.IUnderstand,
		Allow: f.net.allow, Profiles: f.net.profiles, Secrets: f.net.secrets, OwnPolicy: f.net.policy, Offline: f.net.none.set,
	}
	for _, m := range f.mounts {
		mount, err := hostview.ParseMount(m, wd, h.Home)
		if err != nil {
			return err
		}
		user.Mounts = append(user.Mounts, mount)
	}
	s := user
	if !f.noProject && ws != "" {
		if s, err = f.withProject(inv, h, user, ws); err != nil {
			return err
		}
	}
	f.isolation, f.min, f.image, f.template = s.Isolation, s.MinIsolation, s.Image, s.Template
	f.Workdir, f.Home, f.SetEnv, f.Limits, f.ForceCopy, f.Mounts = s.Workdir, s.Home, s.Env, s.Limits, s.Copy, s.Mounts
	f.net.allow, f.net.profiles, f.net.secrets, f.net.project = s.Allow, s.Profiles, s.Secrets, s.Policy
	f.Writable = len(f.writable) > 0
	for _, name := range f.writable {
		if name != "." {
			f.Named = append(f.Named, name)
		}
	}
	if err := f.startGate(inv, h, ws); err != nil {
		return err
	}
	f.Level, f.LevelReason, err = run.Choose(run.Ask{Level: f.isolation, Min: f.min, Root: f.image != "" || f.template != ""})
	if err == nil {
		err = f.nestable(ws)
	}
	return err
}

// nestable refuses --nested-sandboxes where it would open the kernel wider and
// bring nothing: a process whose id is 0 may not map it into a user namespace of
// its own without CAP_SETFCAP, see user_namespaces(7), and at the level process
// nobody has that.
func (f *runFlags) nestable(ws string) error {
	if !f.Nested || f.Level != bailey.IsolationProcess || !f.isRoot(ws) {
		return nil
	}
	return bailey.Errorf(bailey.CodeNotAvailable, "let programs inside make namespaces",
		"add --user 1000, or work in a folder that root does not own", "the command would have the id 0, which the kernel lets nobody map without rights that it has not")
}

// isRoot says whether the command has the id 0 inside at the process level.
func (f *runFlags) isRoot(ws string) bool {
	if f.UID >= 0 {
		return f.UID == 0
	}
	var st unix.Stat_t // the workspace's owner is who it is
	return os.Geteuid() == 0 && ws != "" && unix.Stat(ws, &st) == nil && st.Uid == 0
}

// folder gives the real path of the workspace; "" if it cannot be told, of
// which the run itself says what is wrong.
func (f *runFlags) folder() (string, error) {
	dir := f.Dir
	if dir == "" {
		dir = "."
	}
	ws, err := filepath.Abs(dir)
	if err == nil {
		ws, err = filepath.EvalSymlinks(ws)
	}
	if err != nil {
		return "", nil
	}
	if fi, err := os.Stat(ws); err == nil && !fi.IsDir() {
		return "", bailey.Errorf(bailey.CodeUsage, "use "+strconv.Quote(dir)+" as the workspace", "name the folder that it lies in", "it is a file")
	}
	return ws, nil
}

// withProject merges the project's file in, if a person trusts it.
func (f *runFlags) withProject(inv *invocation, h *run.Host, user project.Settings, ws string) (project.Settings, error) {
	file, notes, err := project.Load(ws, trustStore(h.Folder.Path()), false)
	if err != nil {
		return user, err
	}
	merged, more, err := project.Merge(user, file, run.Defaults(), ws)
	if err != nil {
		return user, err
	}
	for _, n := range append(notes, more...) {
		switch {
		case n.Fine && (!f.verbose || inv.JSON):
		case n.Field == project.FileName:
			inv.Say("%s: %s", project.FileName, terminal.Printable(n.Text))
		default:
			inv.Say("%s: %s: %s", project.FileName, terminal.Printable(n.Field), terminal.Printable(n.Text))
		}
	}
	return merged, nil
}

// trustStore is where the hashes of trusted project files lie.
func trustStore(home string) *project.Store {
	return project.NewStore(filepath.Join(home, "trust"))
}
