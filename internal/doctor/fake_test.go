package doctor

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/bailey-sandbox/bailey"
)

// ordinary is a host on which everything works for an ordinary user.
func ordinary(t *testing.T) Probes {
	root := t.TempDir()
	put(t, root, map[string]string{
		"proc/sys/kernel/osrelease":         "6.8.0-31-generic\n",
		"proc/sys/user/max_user_namespaces": "63000\n",
		"proc/self/ns/user":                 "",
		"proc/self/status":                  "Name:\tbailey\nCapEff:\t0000000000000000\nSeccomp:\t0\n",
		"proc/self/mountinfo":               "22 1 8:1 / / rw - ext4 /dev/sda1 rw\n23 22 0:5 / /proc rw - proc proc rw\n24 23 0:6 / /proc/sys/fs/binfmt_misc rw - autofs x rw\n",
		"proc/filesystems":                  "nodev\tproc\nnodev\toverlay\n\text4\n",
		"proc/meminfo":                      "MemTotal:       16384000 kB\nMemFree: 1 kB\nMemAvailable:    8192000 kB\n",
		"etc/os-release":                    "NAME=x\nPRETTY_NAME=\"Ubuntu 24.04 LTS\"\n",
		"etc/subuid":                        "other:1:2\nann:100000:65536\n",
		"etc/subgid":                        "1000:100000:65536\n",
	})
	exe := filepath.Join(root, "opt/bailey/bailey")
	put(t, root, map[string]string{"opt/bailey/bailey": "", "opt/bailey/bailey-init": "", "opt/bailey/baileyd": "", "bin/newuidmap": ""})
	for p, mode := range map[string]fs.FileMode{"opt/bailey/bailey-init": 0o755, "opt/bailey/baileyd": 0o755, "bin/newuidmap": 0o755 | fs.ModeSetuid} {
		if err := os.Chmod(filepath.Join(root, p), mode); err != nil {
			t.Fatal(err)
		}
	}
	return Probes{
		Version: "v1.2.3", Root: root, OS: "linux", Arch: "amd64", UID: 1000, User: "ann", Executable: exe, BaileyHome: "/home/ann/.local/share/bailey",
		LookPath: func(name string) (string, error) {
			if strings.HasPrefix(name, "new") {
				return filepath.Join(root, "bin/newuidmap"), nil
			}
			return "", errors.New("no such program")
		},
		FileSystem: func(string) (FileSystem, error) { return FileSystem{Kind: "ext4", Free: 50 << 30, Layer: true}, nil },
		Namespaces: func(context.Context) error { return nil },
		MountProc:  func(context.Context) error { return nil },
		Overlay:    func(context.Context, string) error { return nil },
		Seccomp:    func() error { return nil },
		Landlock:   func() int { return 5 },
		Egress:     func(context.Context) Trial { return Trial{OK: true, Value: "transparent"} },
		Gate:       func(context.Context) ([]string, error) { return []string{"no capabilities", "no new privileges"}, nil },
		KVM:        func() (int, error) { return 12, nil },
		Cgroups: func() Cgroups {
			return Cgroups{Version: "v2", Controllers: []Controller{{Name: "memory", Trial: Trial{OK: true}}, {Name: "pids", Trial: Trial{OK: true}}}}
		},
	}
}

func put(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		p := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(p), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(p, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

func fails(err error) func(context.Context) error { return func(context.Context) error { return err } }

func TestHosts(t *testing.T) {
	eperm := &os.PathError{Op: "fork/exec", Path: "x", Err: syscall.EPERM}
	type want struct {
		status Status
		why    string   // part of the reason
		fix    []string // parts of the steps, texts or commands
		not    []string // what no step may say
	}
	tests := []struct {
		name    string
		files   map[string]string
		edit    func(*Probes)
		results map[string]want
		process bool // the process level works
		exit    int
	}{
		{name: "all is well", process: true, results: map[string]want{
			"kernel": {status: OK}, "user-namespaces": {status: OK}, "proc-mount": {status: OK}, "overlay": {status: OK}, "seccomp": {status: OK},
			"landlock": {status: OK}, "cgroups": {status: OK}, "subordinate-ids": {status: OK}, "kvm": {status: OK, why: "not tried yet"},
			"programs": {status: OK}, "data-folder": {status: OK}, "memory": {status: OK}, "surroundings": {status: Info},
		}},
		{
			name:  "Ubuntu 24.04 restricts user namespaces (T42)",
			files: map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "proc/self/attr/apparmor/current": "unconfined\n"},
			edit: func(p *Probes) {
				p.Namespaces = fails(eperm)
				p.MountProc, p.Overlay = fails(eperm), func(context.Context, string) error { return eperm }
				p.Executable = "/home/ann/my apps/bailey"
			},
			results: map[string]want{"user-namespaces": {Missing, "apparmor_restrict_unprivileged_userns is 1", []string{
				`profile bailey "/home/ann/my apps/bailey" flags=(unconfined) {` + "\n  userns,\n",
				"sudo tee /etc/apparmor.d/bailey", "sudo apparmor_parser -r /etc/apparmor.d/bailey", "sudo bailey run", "only root can write"},
				[]string{"userns=0", "sysctl"}}},
			exit: 1,
		},
		{
			name: "Ubuntu 24.04 with the profile installed", process: true,
			files:   map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n", "proc/self/attr/apparmor/current": "bailey (unconfined)\n"},
			results: map[string]want{"user-namespaces": {status: OK}, "surroundings": {status: Info}},
		},
		{
			name: "Ubuntu 24.04 as root", process: true,
			files:   map[string]string{"proc/sys/kernel/apparmor_restrict_unprivileged_userns": "1\n"},
			edit:    func(p *Probes) { p.UID, p.User = 0, "root" },
			results: map[string]want{"user-namespaces": {OK, "AppArmor restricts", []string{"apparmor_parser"}, []string{"sudo bailey run"}}},
		},
		{
			name: "a kernel that says it restricts, but lets the trial pass", process: true,
			files:   map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n"},
			results: map[string]want{"user-namespaces": {status: OK}},
		},
		{
			name:    "Debian's switch is off",
			files:   map[string]string{"proc/sys/kernel/unprivileged_userns_clone": "0\n"},
			edit:    func(p *Probes) { p.Namespaces = fails(eperm) },
			results: map[string]want{"user-namespaces": {Missing, "unprivileged_userns_clone is 0", []string{"kernel.unprivileged_userns_clone = 1", "sudo bailey run"}, nil}},
			exit:    1,
		},
		{
			name:    "no user namespaces are allowed at all",
			files:   map[string]string{"proc/sys/user/max_user_namespaces": "0\n"},
			edit:    func(p *Probes) { p.Namespaces = fails(&os.PathError{Err: syscall.ENOSPC}) },
			results: map[string]want{"user-namespaces": {Missing, "user.max_user_namespaces is 0", []string{"user.max_user_namespaces = 15000"}, []string{"sudo bailey run"}}},
			exit:    1,
		},
		{
			name:    "no net namespaces are allowed",
			files:   map[string]string{"proc/sys/user/max_net_namespaces": "0\n"},
			edit:    func(p *Probes) { p.Namespaces = fails(&os.PathError{Err: syscall.ENOSPC}) },
			results: map[string]want{"user-namespaces": {Missing, "user.max_net_namespaces is 0", []string{"user.max_net_namespaces = 15000"}, nil}},
			exit:    1,
		},
		{
			name:    "too many namespaces",
			edit:    func(p *Probes) { p.Namespaces = fails(&os.PathError{Err: syscall.ENOSPC}) },
			results: map[string]want{"user-namespaces": {Missing, "too many", []string{"lsns"}, nil}},
			exit:    1,
		},
		{
			name: "a security module refuses without a setting", edit: func(p *Probes) { p.Namespaces = fails(eperm) },
			results: map[string]want{"user-namespaces": {Missing, "without saying why", []string{"journalctl", "sudo bailey run"}, nil}},
			exit:    1,
		},
		{
			name:  "a Docker container with its usual filter",
			files: map[string]string{".dockerenv": "", "proc/self/status": "CapEff:\t00000000a80425fb\nSeccomp:\t2\n"},
			edit:  func(p *Probes) { p.UID = 0; p.Namespaces = fails(eperm) },
			results: map[string]want{
				"surroundings":    {status: Info},
				"user-namespaces": {Missing, "Docker", []string{"--security-opt seccomp=unconfined", "systempaths=unconfined", "on the host"}, []string{"--privileged", "sudo"}},
				"proc-mount":      {status: Unknown, why: "needs user namespaces"},
			},
			exit: 1,
		},
		{
			name: "a Docker container in which only /proc is covered", exit: 1,
			files: map[string]string{".dockerenv": "", "proc/self/mountinfo": "22 1 8:1 / / rw - overlay overlay rw\n23 22 0:5 / /proc rw - proc proc rw\n" +
				"24 23 0:5 /bus /proc/bus ro - proc proc rw\n25 23 0:6 / /proc/acpi ro - tmpfs tmpfs ro\n26 23 0:6 / /proc/kcore ro - tmpfs tmpfs ro\n27 23 0:6 / /proc/keys ro - tmpfs tmpfs ro\n"},
			edit:    func(p *Probes) { p.MountProc = fails(errors.New("mount: /proc: permission denied.")) },
			results: map[string]want{"proc-mount": {Missing, "/proc/bus, /proc/acpi, /proc/kcore and 1 more", []string{"systempaths=unconfined"}, nil}},
		},
		{
			name: "Kubernetes", files: map[string]string{"proc/self/cgroup": "0::/kubepods/pod1\n"}, edit: func(p *Probes) { p.Namespaces = fails(eperm) }, exit: 1,
			results: map[string]want{"user-namespaces": {Missing, "Kubernetes", []string{"hostUsers: false", "procMount: Unmasked"}, nil}},
		},
		{
			name: "Podman", files: map[string]string{"run/.containerenv": ""}, edit: func(p *Probes) { p.Namespaces = fails(eperm) }, exit: 1,
			results: map[string]want{"user-namespaces": {Missing, "Podman", []string{"podman run", "unmask=ALL"}, nil}},
		},
		{
			name: "a dev container", files: map[string]string{".dockerenv": ""}, exit: 1,
			edit: func(p *Probes) {
				p.Namespaces = fails(&os.PathError{Err: syscall.ENOSYS})
				p.Getenv = func(name string) string { return map[string]string{"REMOTE_CONTAINERS": "true"}[name] }
			},
			results: map[string]want{"user-namespaces": {Missing, "hides", []string{"devcontainer.json", `"runArgs"`}, nil}},
		},
		{
			name: "a chroot", files: map[string]string{"proc/self/mountinfo": "23 22 0:5 / /proc rw - proc proc rw\n"}, edit: func(p *Probes) { p.Namespaces = fails(eperm) }, exit: 1,
			results: map[string]want{"user-namespaces": {Missing, "chroot", []string{"outside of the chroot"}, nil}},
		},
		{
			name: "WSL 1", files: map[string]string{"proc/sys/kernel/osrelease": "4.4.0-19041-Microsoft\n"}, edit: func(p *Probes) { p.Namespaces = fails(&os.PathError{Err: syscall.EINVAL}) }, exit: 1,
			results: map[string]want{"kernel": {status: Missing, why: "4.4 is too old"}, "user-namespaces": {Missing, "version 1 of the Windows", []string{"wsl --set-version"}, nil}},
		},
		{
			name: "WSL 2", process: true, files: map[string]string{"proc/sys/kernel/osrelease": "5.15.167.4-microsoft-standard-WSL2\n"},
			results: map[string]want{"kernel": {status: OK}},
		},
		{
			name: "an old kernel", files: map[string]string{"proc/sys/kernel/osrelease": "5.4.0-100-generic\n"}, exit: 1,
			results: map[string]want{"kernel": {Missing, "needs 5.12", []string{"newer kernel"}, nil}},
		},
		{
			name: "an aged kernel, as root", process: true, files: map[string]string{"proc/sys/kernel/osrelease": "5.15.0-1\n"}, edit: func(p *Probes) { p.UID = 0 },
			results: map[string]want{"kernel": {Warn, "5.19", []string{"ordinary user"}, nil}},
		},
		{
			name: "a kernel without user namespaces", exit: 1,
			edit: func(p *Probes) {
				os.Remove(filepath.Join(p.Root, "proc/self/ns/user"))
				p.Namespaces = fails(&os.PathError{Err: syscall.EINVAL})
			},
			results: map[string]want{"user-namespaces": {Missing, "built without", []string{"CONFIG_USER_NS"}, nil}},
		},
		{
			name: "no overlayfs", process: true, files: map[string]string{"proc/filesystems": "nodev\tproc\n"},
			edit: func(p *Probes) {
				p.Overlay = func(context.Context, string) error { return errors.New("unknown filesystem type") }
			},
			results: map[string]want{"overlay": {Missing, "no overlayfs", []string{"modprobe overlay"}, nil}},
		},
		{
			name: "overlay on overlay", process: true, files: map[string]string{"proc/self/mountinfo": "22 1 0:9 / / rw - overlay overlay rw\n"},
			edit: func(p *Probes) {
				p.Overlay = func(context.Context, string) error { return errors.New("wrong fs type") }
			},
			results: map[string]want{"overlay": {Missing, "cannot carry another", []string{"BAILEY_HOME"}, nil}},
		},
		{
			name: "nothing can be tried", exit: 1,
			edit: func(p *Probes) {
				p.Namespaces, p.MountProc, p.Overlay, p.Seccomp, p.Landlock, p.KVM, p.Cgroups, p.LookPath, p.FileSystem = nil, nil, nil, nil, nil, nil, nil, nil, nil
				p.Executable = ""
			},
			results: map[string]want{"user-namespaces": {status: Unknown}, "seccomp": {status: Unknown}, "kvm": {status: Unknown}, "cgroups": {status: Unknown}, "programs": {status: Unknown}},
		},
		{
			name: "the mount program is absent", exit: 1,
			edit:    func(p *Probes) { p.MountProc = fails(ErrNotTried) },
			results: map[string]want{"proc-mount": {status: Unknown}},
		},
		{
			name: "lesser lacks", process: true,
			files: map[string]string{"proc/meminfo": "MemTotal: 262144 kB\n", "etc/subuid": "other:1:2\nann:x:y\nann:1:-5\n", "proc/cpuinfo": "flags\t\t: fpu vmx sse\n"},
			edit: func(p *Probes) {
				p.Landlock = func() int { return 0 }
				p.KVM = func() (int, error) { return 0, syscall.ENOENT }
				p.Executable += "x/bailey"
				p.FileSystem = func(string) (FileSystem, error) { return FileSystem{Kind: "NFS", Free: 1 << 40}, nil }
				p.Cgroups = func() Cgroups {
					return Cgroups{Version: "none", Controllers: []Controller{
						{Name: "memory", Trial: Trial{Why: "no delegation", Fix: "systemd-run --user"}}, {Name: "pids", Trial: Trial{Why: "no delegation", Fix: "systemd-run --user"}},
					}}
				}
			},
			results: map[string]want{
				"memory": {status: Warn}, "landlock": {Warn, "one wall less", []string{"lsm="}, nil}, "kvm": {Info, "no /dev/kvm", []string{"modprobe kvm_intel"}, nil},
				"programs": {Warn, "baileyd is not beside bailey, and is needed for the level container", []string{"./scripts/build"}, nil}, "data-folder": {Warn, "copied whole", []string{"BAILEY_HOME"}, nil},
				"cgroups": {status: Warn, why: "limit_unavailable"}, "cgroup-memory": {Warn, "no delegation", []string{"systemd-run"}, nil},
				"cgroup-pids":     {status: OK, why: "several users"},
				"subordinate-ids": {Warn, "/etc/subuid gives", []string{"usermod --add-subuids"}, nil},
			},
		},
		{
			name: "KVM is for others", process: true, edit: func(p *Probes) { p.KVM = func() (int, error) { return 0, syscall.EACCES } },
			results: map[string]want{"kvm": {Info, "may not open", []string{"usermod -aG kvm"}, nil}},
		},
		{
			name: "KVM is there and makes nothing", process: true, edit: func(p *Probes) { p.KVM = func() (int, error) { return 12, errors.New("it makes no machine: busy") } },
			results: map[string]want{"kvm": {status: Info, why: "makes no machine"}},
		},
		{
			name: "newuidmap has lost its bit", process: true,
			edit: func(p *Probes) {
				if err := os.Chmod(filepath.Join(p.Root, "bin/newuidmap"), 0o755); err != nil {
					panic(err)
				}
			},
			results: map[string]want{"subordinate-ids": {status: Warn, why: "neither setuid"}},
		},
		{
			name: "the driver fails though all is there", exit: 1,
			edit: func(p *Probes) {
				p.Sandbox = func(context.Context, bailey.Isolation) Trial { return Trial{Why: "step 7 failed", Fix: "do this"} }
			},
			results: map[string]want{"user-namespaces": {status: OK}},
		},
		{
			name: "no nftables", process: true,
			edit: func(p *Probes) {
				p.Egress = func(context.Context) Trial { return Trial{Why: "the kernel has no nf_tables", Fix: "load it"} }
			},
			results: map[string]want{"egress": {status: Warn, why: "no nf_tables"}},
		},
		{
			name: "a gate with one wall less", process: true,
			edit: func(p *Probes) {
				p.Gate = func(context.Context) ([]string, error) {
					return []string{"no capabilities", "missing: Landlock: this kernel has none"}, nil
				}
			},
			results: map[string]want{"gate": {status: Warn, why: "this kernel has none"}},
		},
		{
			name: "no gate", process: true,
			edit: func(p *Probes) {
				p.Gate = func(context.Context) ([]string, error) { return nil, errors.New("baileyd is not there") }
			},
			results: map[string]want{"gate": {status: Warn, why: "not there"}},
		},
		{
			name: "no IPv6", process: true,
			edit: func(p *Probes) {
				p.Egress = func(context.Context) Trial { return Trial{OK: true, Value: "transparent", Why: "no IPv6"} }
			},
			results: map[string]want{"egress": {status: OK, why: "no IPv6"}},
		},
		{
			name: "the driver works though something could not be tried", process: true,
			edit: func(p *Probes) {
				p.MountProc = fails(ErrNotTried)
				p.Sandbox = func(context.Context, bailey.Isolation) Trial { return Trial{OK: true} }
			},
			results: map[string]want{"proc-mount": {status: Unknown}},
		},
		{
			name: "gVisor is not there", process: true,
			edit:    func(p *Probes) { p.Executable = filepath.Join(t.TempDir(), "bailey") },
			results: map[string]want{"runsc": {status: Missing, why: "not beside bailey"}, "machines": {status: Missing, why: "bailey-microvm.kit"}},
		},
		{
			name: "gVisor without its cell", process: true,
			edit: func(p *Probes) {
				dir := t.TempDir()
				p.Executable = filepath.Join(dir, "bailey")
				if err := os.WriteFile(filepath.Join(dir, "runsc"), nil, 0o755); err != nil {
					t.Fatal(err)
				}
			},
			results: map[string]want{"runsc": {status: Missing, why: "bailey-cell"}},
		},
		{name: "macOS, with a sandbox", process: true, edit: func(p *Probes) {
			p.OS = "darwin"
			p.Sandbox = func(_ context.Context, l bailey.Isolation) Trial { return Trial{OK: true} }
		}},
		{name: "macOS, not tried", exit: 1, edit: func(p *Probes) { p.OS = "darwin" }},
		{name: "Windows", exit: 1, edit: func(p *Probes) { p.OS = "windows" }},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			p := ordinary(t)
			put(t, p.Root, tt.files)
			if tt.edit != nil {
				tt.edit(&p)
			}
			r := Check(context.Background(), p)
			for name, w := range tt.results {
				got := r.Result(name)
				steps := ""
				for _, s := range got.Fix {
					steps += s.Text + "\n" + s.Command + "\n"
				}
				if got.Status != w.status || !strings.Contains(got.Why, w.why) {
					t.Errorf("%s is %+v, not %s because of %q", name, got, w.status, w.why)
				}
				for _, part := range w.fix {
					if !strings.Contains(steps, part) {
						t.Errorf("%s: no step says %q:\n%s", name, part, steps)
					}
				}
				for _, part := range w.not {
					if strings.Contains(steps, part) {
						t.Errorf("%s: a step says %q:\n%s", name, part, steps)
					}
				}
				if got.Status == Missing && (got.Why == "" || len(got.Fix) == 0) {
					t.Errorf("%s is missing, without a reason or a step: %+v", name, got)
				}
			}
			if len(r.Levels) != 6 {
				t.Fatalf("levels are %+v", r.Levels)
			}
			for _, l := range r.Levels {
				if l.Why == "" {
					t.Errorf("level %s: no reason", l.Level)
				}
				if l.Level == bailey.IsolationProcess && (l.Available != tt.process || !l.Available && len(l.Fix) == 0 && p.OS == "linux" &&
					!strings.Contains(l.Why, "not tried")) {
					t.Errorf("level %s is %+v", l.Level, l)
				}
				if l.Level > bailey.IsolationMicroVM && l.Available {
					t.Errorf("level %s is there in this version", l.Level)
				}
			}
			if r.ExitCode() != tt.exit {
				t.Errorf("exit code %d, not %d", r.ExitCode(), tt.exit)
			}
			var text, doc bytes.Buffer
			if err := errors.Join(r.WriteText(&text), r.WriteJSON(&doc)); err != nil {
				t.Error(err)
			}
			for name, w := range tt.results {
				for _, part := range w.fix {
					if w.status != OK && !strings.Contains(strings.Join(strings.Fields(text.String()), " "), strings.Join(strings.Fields(part), " ")) {
						t.Errorf("%s: the text does not say %q:\n%s", name, part, text.String())
					}
				}
			}
		})
	}
}

// TestContainerNeedsBaileyd: without the program that prepares its root file
// system, the level container does not work, whatever the driver can build.
func TestContainerNeedsBaileyd(t *testing.T) {
	p := ordinary(t)
	p.Sandbox = func(context.Context, bailey.Isolation) Trial { return Trial{OK: true} }
	container := func() Level {
		for _, l := range Check(context.Background(), p).Levels {
			if l.Level == bailey.IsolationContainer {
				return l
			}
		}
		t.Fatal("there is no level container")
		return Level{}
	}
	if l := container(); !l.Available {
		t.Errorf("with all programs: %+v", l)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(p.Executable), "bailey-init")); err != nil {
		t.Fatal(err)
	}
	if l := container(); !l.Available {
		t.Errorf("without bailey-init: %+v", l)
	}
	if err := os.Remove(filepath.Join(filepath.Dir(p.Executable), "baileyd")); err != nil {
		t.Fatal(err)
	}
	if l := container(); l.Available || l.Why != "baileyd is not beside bailey" || len(l.Fix) != 1 {
		t.Errorf("without baileyd: %+v", l)
	}
	var text bytes.Buffer
	if err := Check(context.Background(), p).WriteText(&text); err != nil || !strings.Contains(text.String(), "container    no   baileyd is not beside bailey") {
		t.Errorf("the text is (%v):\n%s", err, text.String())
	}
}
