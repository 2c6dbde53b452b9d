package cli

import (
	"context"
	"os"
	"os/user"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/doctor"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// doctorCommand says for every level whether it works here, why not, and what
// to do.
func doctorCommand(inv *invocation) (int, error) {
	var report bool
	inv.flags.BoolVar(&inv.json, "json", false, "print JSON")
	inv.flags.BoolVar(&report, "report", false, "for a bug report: without names, paths and addresses of yours")
	if err := inv.alone(); err != nil {
		return 0, err
	}
	home, err := folder.DefaultPath()
	if err != nil {
		home = ""
	}
	p := doctor.Host(version(), home)
	p.Sandbox = tryLevel
	r := doctor.Check(context.Background(), p)
	if report {
		id := doctor.Identity{Home: os.Getenv("HOME"), Secrets: []string{home}}
		if u, err := user.Current(); err == nil {
			id.User = u.Username
		}
		id.Hostname, _ = os.Hostname()
		if wd, err := os.Getwd(); err == nil {
			id.Secrets = append(id.Secrets, wd)
		}
		r = r.Redacted(id)
	}
	if inv.json {
		return r.ExitCode(), r.WriteJSON(inv.stdout)
	}
	return r.ExitCode(), r.WriteText(inv.stdout)
}

// tryLevel builds the smallest sandbox of a level in a folder of its own, so
// that doctor works without a data folder, and leaves none.
func tryLevel(ctx context.Context, level bailey.Isolation) doctor.Trial {
	if level != bailey.IsolationProcess && level != bailey.IsolationContainer {
		return doctor.Trial{Why: "not in this version"}
	}
	dir, err := os.MkdirTemp("", "bailey-doctor-")
	if err != nil {
		return doctor.Trial{Why: err.Error()}
	}
	defer os.RemoveAll(dir)
	c := linux.New(linux.Options{State: dir}).Probe(ctx, level)
	return doctor.Trial{OK: c.Available, Why: c.Why, Fix: c.Fix}
}
