package cli

import (
	"context"
	"os"
	"os/user"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cli/command"
	"github.com/bailey-sandbox/bailey/internal/doctor"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/levels"
	"github.com/bailey-sandbox/bailey/internal/run"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// doctorCommand says for every level whether it works here, why not, and what
// to do.
func doctorCommand(inv *invocation) (int, error) {
	var report bool
	inv.Flags.BoolVar(&inv.JSON, "json", false, "print JSON")
	inv.Flags.BoolVar(&report, "report", false, "for a bug report: without names, paths and addresses of yours")
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	home, err := folder.DefaultPath()
	if err != nil {
		home = ""
	}
	p := doctor.Host(command.Version(), home)
	p.Sandbox, p.Egress = tryLevel, tryEgress
	p.Gate = func(ctx context.Context) ([]string, error) {
		return run.Confinement(ctx, func() (string, error) { return program("baileyd") })
	}
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
	if inv.JSON {
		return r.ExitCode(), r.WriteJSON(inv.Stdout)
	}
	return r.ExitCode(), r.WriteText(inv.Stdout)
}

// tryLevel builds the smallest sandbox of a level in a folder of its own, so
// that doctor works without a data folder, and leaves none.
func tryLevel(ctx context.Context, level bailey.Isolation) doctor.Trial {
	if level < bailey.IsolationProcess || level > bailey.IsolationMicroVM {
		return doctor.Trial{Why: "not in this version"}
	}
	c, err := probe(ctx, level)
	if err != nil {
		return doctor.Trial{Why: err.Error()}
	}
	if c.Available && c.Emulated {
		return doctor.Trial{OK: true, Untried: true, Why: "what it needs is there; the processor is imitated by software, which is slow, and nobody gets it who has not named it"}
	}
	return doctor.Trial{OK: c.Available, Why: c.Why, Fix: c.Fix}
}

func tryEgress(ctx context.Context) doctor.Trial {
	c, err := probe(ctx, bailey.IsolationProcess)
	if err != nil {
		return doctor.Trial{Why: err.Error()}
	}
	return doctor.Trial{OK: c.Egress != "", Value: c.Egress, Why: c.EgressWhy, Fix: c.EgressFix}
}

func probe(ctx context.Context, level bailey.Isolation) (driver.Capabilities, error) {
	dir, err := os.MkdirTemp("", "bailey-doctor-")
	if err != nil {
		return driver.Capabilities{}, err
	}
	defer os.RemoveAll(dir)
	return levels.Of(linux.New(linux.Options{State: dir}), "").Probe(ctx, level), nil
}
