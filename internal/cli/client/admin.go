package client

import (
	"fmt"
	"io"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
	"github.com/bailey-sandbox/bailey/internal/cli/values"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

func eventsCommand(inv *invocation) (int, error) {
	from := inv.Flags.Int64("from", 0, "begin at this number; default with what is kept")
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	return 0, inv.ended(c.Events(inv.ctx, *from, func(ev api.Event) error {
		if inv.JSON {
			return inv.line(ev)
		}
		_, err := fmt.Fprintln(inv.Stdout, ev.Seq, ev.Time.Local().Format(time.DateTime), ev.Kind, terminal.Printable(ev.Sandbox+" "+string(ev.Data)))
		return err
	}))
}

func keyCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"create": createKey, "ls": listKeys, "rm": removeKeys})
}

func createKey(inv *invocation) error {
	var spec api.KeySpec
	fs := inv.Flags
	fs.StringArrayVar(&spec.Scopes, "scope", []string{"read", "exec", "write"}, "what it may do: read, exec, write, admin")
	fs.Var(lifetime{&spec.Lifetime}, "lifetime", "how long it is good for; default never ends")
	fs.Float64Var(&spec.Rate, "rate", 0, "requests a second; default the daemon's")
	fs.IntVar(&spec.Quota.Sandboxes, "max-sandboxes", 0, "sandboxes at once")
	fs.IntVar(&spec.Quota.Running, "max-running", 0, "sandboxes that run at once")
	fs.Float64Var(&spec.Quota.CPUs, "max-cpus", 0, "processors of all together")
	fs.Var(values.Bytes{To: &spec.Quota.Memory}, "max-memory", "memory of all together")
	fs.Var(values.Bytes{To: &spec.Quota.Disk}, "max-disk", "disk of all together")
	var longest time.Duration
	fs.Var(values.Duration{To: &longest}, "max-timeout", "the longest that a sandbox may live")
	args, err := inv.some(1, 1, "NAME")
	if err != nil {
		return err
	}
	spec.Name, spec.Quota.MaxTimeout = args[0], api.Duration(longest)
	c, err := inv.connect()
	if err != nil {
		return err
	}
	k, err := c.CreateKey(inv.ctx, spec)
	if err != nil {
		return err
	}
	return inv.print(k, func(w io.Writer) {
		fmt.Fprintln(w, k.Token)
		inv.Say("this is the only time that it is shown")
	})
}

func listKeys(inv *invocation) error {
	if err := inv.Alone(); err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Keys(inv.ctx)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"NAME", "SCOPES", "AGE", "EXPIRES"}}
		for _, k := range list {
			rows = append(rows, []string{k.Name, strings.Join(k.Scopes, ","), ago(k.Created), until(k.Expires)})
		}
		table(w, rows)
	})
}

func removeKeys(inv *invocation) error {
	return inv.eachNamed("NAME...", func(c *client.Client, name string) error { return c.DeleteKey(inv.ctx, name) })
}

func webhookCommand(inv *invocation) (int, error) {
	return inv.second(verbs{"create": createWebhook, "ls": listWebhooks, "rm": removeWebhooks})
}

func createWebhook(inv *invocation) error {
	var spec api.WebhookSpec
	inv.Flags.StringArrayVar(&spec.Kinds, "kind", nil, "only events of this kind, such as sandbox.*; default all")
	args, err := inv.some(1, 1, "URL")
	if err != nil {
		return err
	}
	spec.URL = args[0]
	c, err := inv.connect()
	if err != nil {
		return err
	}
	h, err := c.CreateWebhook(inv.ctx, spec)
	if err != nil {
		return err
	}
	return inv.print(h, func(w io.Writer) {
		fmt.Fprintln(w, h.ID, h.Secret)
		inv.Say("the second word signs what is sent; this is the only time that it is shown")
	})
}

func listWebhooks(inv *invocation) error {
	if err := inv.Alone(); err != nil {
		return err
	}
	c, err := inv.connect()
	if err != nil {
		return err
	}
	list, err := c.Webhooks(inv.ctx)
	if err != nil {
		return err
	}
	return inv.print(list, func(w io.Writer) {
		rows := [][]string{{"ID", "URL", "KINDS", "FAILED"}}
		for _, h := range list {
			rows = append(rows, []string{h.ID, h.URL, strings.Join(h.Kinds, ","), fmt.Sprint(h.Failed)})
		}
		table(w, rows)
	})
}

func removeWebhooks(inv *invocation) error {
	return inv.eachNamed("ID...", func(c *client.Client, id string) error { return c.DeleteWebhook(inv.ctx, id) })
}

func gcCommand(inv *invocation) (int, error) {
	dry := inv.Flags.Bool("dry-run", false, "only tell what would be removed, and why")
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	list, err := c.GC(inv.ctx, *dry)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(list, func(w io.Writer) {
		if len(list) == 0 {
			fmt.Fprintln(w, "nothing belongs to nobody")
			return
		}
		rows := [][]string{{"KIND", "NAME", "SIZE", "WHY", "ACTION"}}
		for _, o := range list {
			rows = append(rows, []string{o.Kind, o.Name, size(o.Bytes), o.Why, o.Action})
		}
		table(w, rows)
	})
}

func infoCommand(inv *invocation) (int, error) {
	if err := inv.Alone(); err != nil {
		return 0, err
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	info, err := c.Info(inv.ctx)
	if err != nil {
		return 0, err
	}
	return 0, inv.print(info, func(w io.Writer) {
		rows := [][]string{{"version", info.Version}, {"api", info.API}, {"started", info.Started.Local().Format(time.DateTime)},
			{"data folder", info.Home}, {"sandboxes", fmt.Sprint(info.Sandboxes)}, {"domain", info.Domain}}
		for _, l := range info.Levels {
			text := "works"
			if !l.Available {
				text = l.Why + "; " + l.Fix
			}
			rows = append(rows, []string{l.Isolation.String(), text})
		}
		table(w, rows)
	})
}
