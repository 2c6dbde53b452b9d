package cli

import (
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/project"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// settle brings the flags and the project's file together and decides what
// follows from both.
func (f *runFlags) settle(inv *invocation, h *run.Host) error {
	wd, err := os.Getwd()
	if err != nil && f.Dir == "" {
		return nil // the run itself says what is wrong with the folder
	}
	user := project.Settings{
		Isolation: f.isolation, MinIsolation: f.min, Image: f.image, Template: f.template,
		Workdir: f.Workdir, Home: f.Home, Env: f.SetEnv, Limits: f.Limits, Copy: f.ForceCopy,
		Writable: f.writable, Apply: f.apply, Nested: f.Nested, IUnderstand: f.IUnderstand, Allow: f.allow,
	}
	for _, m := range f.mounts {
		mount, err := hostview.ParseMount(m, wd, h.Home)
		if err != nil {
			return err
		}
		user.Mounts = append(user.Mounts, mount)
	}
	s := user
	if !f.noProject {
		if s, err = f.withProject(inv, h, user, wd); err != nil {
			return err
		}
	}
	f.isolation, f.min, f.image, f.template = s.Isolation, s.MinIsolation, s.Image, s.Template
	f.Workdir, f.Home, f.SetEnv, f.Limits, f.ForceCopy, f.Mounts = s.Workdir, s.Home, s.Env, s.Limits, s.Copy, s.Mounts
	f.Writable = len(f.writable) > 0
	for _, name := range f.writable {
		if name != "." {
			f.Named = append(f.Named, name)
		}
	}
	f.Level, f.LevelReason, err = run.Choose(run.Ask{Level: f.isolation, Min: f.min, Root: f.image != "" || f.template != ""})
	return err
}

// withProject merges the project's file in, if a person trusts it.
func (f *runFlags) withProject(inv *invocation, h *run.Host, user project.Settings, wd string) (project.Settings, error) {
	dir := f.Dir
	if dir == "" {
		dir = wd
	}
	ws, err := filepath.EvalSymlinks(dir)
	if err == nil {
		ws, err = filepath.Abs(ws)
	}
	if err != nil {
		return user, nil // the run itself says what is wrong with the folder
	}
	file, notes, err := project.Load(ws, trustStore(h.Folder.Path()), false)
	if err != nil {
		return user, err
	}
	merged, more, err := project.Merge(user, file, run.Defaults(), ws)
	if err != nil {
		return user, err
	}
	for _, n := range append(notes, more...) {
		inv.say("%s: %s: %s", project.FileName, terminal.Printable(n.Field), terminal.Printable(n.Text))
	}
	return merged, nil
}

// trustStore is where the hashes of trusted project files lie.
func trustStore(home string) *project.Store {
	return project.NewStore(filepath.Join(home, "trust"))
}
