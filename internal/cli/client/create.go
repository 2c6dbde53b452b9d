package client

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/pflag"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/cli/values"
	"github.com/bailey-sandbox/bailey/internal/terminal"
)

// specFlags are the flags of all that makes sandboxes.
type specFlags struct {
	api.SandboxSpec
	env, labels, volumes []string
	policy, workspace    string
	lease                api.Lifetime
	leaseAction          string
	onTimeout, onIdle    string
	queue                api.Lifetime
}

func (f *specFlags) add(fs *pflag.FlagSet) {
	s := &f.SandboxSpec
	fs.StringVar(&s.Name, "name", "", "a second way to refer to it")
	fs.StringVar(&s.Template, "template", "", "the template it starts from; default host")
	fs.StringVar(&s.Image, "image", "", "an image: a reference that is pulled, or a path of this machine")
	fs.StringVar(&s.Snapshot, "snapshot", "", "a snapshot that it starts from")
	fs.StringVar(&s.Fallback, "fallback", "", "a template, or image:REF, in place of a snapshot that is gone")
	fs.Var(values.Isolation{To: &s.Isolation}, "isolation", "how strong the boundary is; default auto: the strongest that can do all this")
	fs.Var(values.Isolation{To: &s.MinIsolation}, "min-isolation", "refuse anything weaker than this")
	fs.StringVar(&f.workspace, "workspace", "", "a folder that is seen copy-on-write at its own path")
	fs.StringArrayVar(&s.Mounts, "mount", nil, "show a folder inside: SOURCE[:TARGET][:ro|rw]")
	fs.StringArrayVar(&f.volumes, "volume", nil, "show a volume inside: NAME:TARGET[:ro]")
	fs.StringArrayVar(&f.env, "env", nil, "set NAME=VALUE inside, or pass NAME on")
	fs.StringVar(&s.Workdir, "workdir", "", "the folder that commands start in")
	fs.StringVar(&s.User, "user", "", "the user of commands: UID[:GID] or a name of the root")
	fs.Float64Var(&s.Limits.CPUs, "cpus", 0, "processors, as in 1.5")
	fs.Var(values.Bytes{To: &s.Limits.Memory}, "memory", "memory and swap together")
	fs.Int64Var(&s.Limits.Pids, "pids", 0, "processes and threads at once")
	fs.Var(values.Bytes{To: &s.Limits.Disk}, "disk", "what may be written")
	fs.Var(values.Bytes{To: &s.Limits.IO}, "io", "to and from disks per second, each way")
	fs.Var(lifetime{&s.Timeout}, "timeout", "how long it lives, or never; default 1h")
	fs.StringVar(&f.onTimeout, "on-timeout", "", "then pause, stop or kill it; default kill")
	fs.Var(lifetime{&s.Idle}, "idle", "how long nothing may happen; default never")
	fs.StringVar(&f.onIdle, "on-idle", "", "then pause, stop or kill it; default pause")
	fs.StringArrayVar(&s.Allow, "allow", nil, "let it reach HOST[:PORT]")
	fs.StringArrayVar(&s.Profiles, "profile", nil, "let it reach what a profile names")
	fs.StringArrayVar(&s.Secrets, "secret", nil, "put a secret in on the way to a host: NAME@HOST")
	fs.StringVar(&f.policy, "policy", "", "a policy document")
	fs.StringArrayVar(&f.labels, "label", nil, "NAME=VALUE to find it by")
	fs.Var(lifetime{&f.lease}, "lease", "end it unless its owner renews within this time")
	fs.StringVar(&f.leaseAction, "lease-action", "", "what then happens: pause, stop or kill; default kill")
	fs.BoolVar(&s.CheckpointEach, "checkpoint-each", false, "a checkpoint before each command")
	fs.BoolVar(&s.Restart, "restart", false, "start it anew from its files when it is lost")
	fs.Var(lifetime{&f.queue}, "queue", "how long to wait when there is no room")
	fs.StringVar(&s.IdempotencyKey, "idempotency-key", "", "a repeated create with it gives the sandbox of the first")
}

// spec gives what the flags say.
func (f *specFlags) spec() (api.SandboxSpec, error) {
	s := f.SandboxSpec
	var err error
	if s.Env, err = environment(f.env); err != nil {
		return s, err
	}
	if s.Labels, err = pairs(f.labels, "label"); err != nil {
		return s, err
	}
	for _, v := range f.volumes {
		m, err := volumeMount(v)
		if err != nil {
			return s, err
		}
		s.Volumes = append(s.Volumes, m)
	}
	s.OnTimeout, s.OnIdle = api.Action(f.onTimeout), api.Action(f.onIdle)
	if !f.lease.IsZero() {
		if f.lease.Never {
			return s, bailey.Errorf(bailey.CodeUsage, "read --lease never", "leave it out", "a lease that never ends is none")
		}
		s.Lease = &api.Lease{TTL: f.lease.After, Action: api.Action(f.leaseAction)}
	}
	if f.queue.Never {
		return s, bailey.Errorf(bailey.CodeUsage, "read --queue never", "write it like 10m", "something has to end the wait")
	}
	s.Queue = f.queue.After
	if s.Policy, err = policyFile(f.policy); err != nil {
		return s, err
	}
	if f.workspace != "" {
		if s.Workspace, err = filepath.Abs(f.workspace); err != nil {
			return s, bailey.Errorf(bailey.CodeUsage, "use the workspace", "", "%w", err)
		}
	}
	for i, m := range s.Mounts {
		if s.Mounts[i], err = absoluteSource(m); err != nil {
			return s, err
		}
	}
	if _, err := os.Stat(s.Image); err == nil && strings.ContainsAny(s.Image, "./") {
		if s.Image, err = filepath.Abs(s.Image); err != nil {
			return s, bailey.Errorf(bailey.CodeUsage, "use the image", "", "%w", err)
		}
	}
	return s, nil
}

// environment reads --env: NAME alone takes the value that this program was given.
func environment(list []string) (map[string]string, error) {
	m := map[string]string{}
	for _, kv := range list {
		name, value, ok := strings.Cut(kv, "=")
		if !ok {
			if value, ok = os.LookupEnv(name); !ok {
				continue
			}
		}
		m[name] = value
	}
	return m, nil
}

// volumeMount reads NAME:TARGET[:ro].
func volumeMount(text string) (api.VolumeMount, error) {
	parts := strings.Split(text, ":")
	if len(parts) < 2 || len(parts) > 3 || len(parts) == 3 && parts[2] != "ro" && parts[2] != "rw" {
		return api.VolumeMount{}, bailey.Errorf(bailey.CodeUsage, "read --volume "+text, "write NAME:TARGET or NAME:TARGET:ro", "it has another form")
	}
	return api.VolumeMount{Volume: parts[0], Target: parts[1], ReadOnly: len(parts) == 3 && parts[2] == "ro"}, nil
}

// absoluteSource makes the source of a mount absolute: the daemon has another
// working folder.
func absoluteSource(m string) (string, error) {
	source, rest, more := strings.Cut(m, ":")
	abs, err := filepath.Abs(source)
	if err != nil {
		return "", bailey.Errorf(bailey.CodeUsage, "mount "+m, "", "%w", err)
	}
	if !more {
		return abs, nil
	}
	return abs + ":" + rest, nil
}

// policyFile reads a policy document as the text that it is; "-" is standard input.
func policyFile(name string) (json.RawMessage, error) {
	if name == "" {
		return nil, nil
	}
	const most = 1 << 20
	f := os.Stdin
	if name != "-" {
		var err error
		if f, err = os.Open(name); err != nil {
			return nil, bailey.Errorf(bailey.CodePolicyInvalid, "read the policy "+name, "", "%w", err)
		}
		defer f.Close() // it was only read
	}
	b, err := io.ReadAll(io.LimitReader(f, most+1))
	if err != nil {
		return nil, bailey.Errorf(bailey.CodePolicyInvalid, "read the policy "+name, "", "%w", err)
	}
	if len(b) > most {
		return nil, bailey.Errorf(bailey.CodePolicyInvalid, "read the policy "+name, "", "it has more than %d bytes", most)
	}
	return json.Marshal(string(b))
}

func createCommand(inv *invocation) (int, error) {
	var f specFlags
	f.add(inv.Flags)
	before, cmd, err := inv.split()
	if err != nil {
		return 0, err
	}
	if len(before) > 0 {
		return 0, bailey.Errorf(bailey.CodeUsage, "run bailey create", "put -- before a command", "%q is no flag", terminal.Printable(before[0]))
	}
	spec, err := f.spec()
	if err != nil {
		return 0, err
	}
	c, err := inv.connect()
	if err != nil {
		return 0, err
	}
	sb, err := c.CreateInfo(inv.ctx, spec)
	if err != nil {
		return 0, err
	}
	if len(cmd) > 0 {
		if _, err := c.Sandbox(sb.ID).Start(inv.ctx, api.ExecSpec{Args: cmd}); err != nil {
			inv.Say("made %s, but its command did not start", sb.ID)
			return 0, err
		}
	}
	for _, n := range sb.Notes {
		inv.Say("%s", terminal.Printable(n))
	}
	if !inv.JSON && terminal.Is(os.Stderr) && sb.IsolationReason != "" {
		inv.Say("%s: %s", sb.Isolation, terminal.Printable(sb.IsolationReason))
	}
	return 0, inv.print(sb, func(w io.Writer) { fmt.Fprintln(w, sb.ID) })
}
