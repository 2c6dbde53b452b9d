package microvm

import (
	"encoding/json"
	"errors"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
)

// Where things lie in a cell's own small root.
const (
	rootAt    = "/rootfs" // the sandbox's root
	stateAt   = "/state"  // the cell's folder on the host
	vmmAt     = "/bailey-vmm"
	machineAt = "/machine.json"
	cellAt    = "/cell.json"
	kernelAt  = "/vmlinux"
	firstAt   = "/initramfs"
	// initAt is bailey-init, as the sandbox sees it.
	initAt = "/dev/.bailey-init"

	controlName = "control"
	endName     = "end.json"
)

const (
	minMemory = 128 << 20
	// usualMemory is a machine's memory when nobody has asked for one. It is taken of the
	// host as it is used.
	usualMemory = 1 << 30
	// overMemory is what the monitor and bailey-vmm take beside the machine's memory,
	// with translated code.
	overMemory = 320 << 20
	maxCPUs    = 64
)

// aCell is a cell that is being written down.
type aCell struct {
	inner driver.Spec
	kit   *kit.Kit
	vmm   string
	agent string // bailey-cell; "" for one command
	dir   string // its folder on the host
}

func (d *Driver) newCell(spec driver.Spec) (*aCell, error) {
	c := &aCell{inner: spec}
	var err error
	if c.dir, err = folder(spec); err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "find the cell's folder", "", "%w", err)
	}
	if c.kit, err = d.kit(); err != nil {
		return nil, err
	}
	if c.vmm, err = d.program("bailey-vmm"); err != nil {
		return nil, err
	}
	if len(spec.Entry.Command) == 0 {
		if c.agent, err = d.program("bailey-cell"); err != nil {
			return nil, err
		}
	}
	return c, nil
}

// folder gives a cell's folder on the host, which the sandbox's folder is to have, with
// no link on the way: the outer driver follows none.
func folder(spec driver.Spec) (string, error) {
	if spec.Own == "" {
		return "", errors.New("the sandbox has no folder of its own")
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(spec.Own))
	return filepath.Join(parent, filepath.Base(spec.Own)), err
}

// makeDir makes the cell's folder, in place of one that a crash has left.
func (c *aCell) makeDir() error {
	err := os.RemoveAll(c.dir)
	if err == nil {
		err = os.Mkdir(c.dir, 0o700)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, "make the cell's folder", "", "%w", err)
	}
	return nil
}

func (c *aCell) remove() { os.RemoveAll(c.dir) }

// memory is what the machine is told that it has.
func (c *aCell) memory() int64 {
	m := c.inner.Limits.Memory
	if m == 0 {
		m = usualMemory
		if d := c.inner.Defaults.Memory; d > 0 {
			m = min(m, max(d, minMemory))
		}
	}
	return m &^ (1<<20 - 1)
}

func (c *aCell) cpus() int {
	n := 1
	if c.inner.Limits.CPUs > 0 {
		n = int(math.Ceil(c.inner.Limits.CPUs))
	}
	return max(1, min(n, runtime.NumCPU(), maxCPUs))
}

// spec gives the cell as the outer driver builds it.
func (c *aCell) spec() (driver.Spec, error) {
	o := c.inner
	o.Level = bailey.IsolationContainer
	o.Workdir, o.Env = "/", nil
	o.Cell = &driver.Cell{}
	// The machine's own memory is its limit; the monitor's comes on top.
	if o.Limits.Memory > 0 {
		o.Limits.Memory += overMemory
	}
	// Processes are counted inside; outside there are the monitor's threads.
	o.Limits.Pids = 0
	places := []driver.Place{
		{Kind: driver.Bind, Target: vmmAt, Source: c.vmm, ReadOnly: true},
		{Kind: driver.Bind, Target: kernelAt, Source: c.kit.Vmlinux(), ReadOnly: true},
		{Kind: driver.Bind, Target: firstAt, Source: c.kit.Initramfs(), ReadOnly: true},
		{Kind: driver.Scratch, Target: stateAt, Source: c.dir, IsDir: true},
	}
	tops, err := os.ReadDir(c.kit.Root())
	if err != nil {
		return o, bailey.Errorf(bailey.CodeStorage, "find the monitor", install, "%w", err)
	}
	for _, t := range tops {
		switch t.Name() {
		case "proc", "dev", "run", "tmp":
		default:
			places = append(places, driver.Place{Kind: driver.Bind, Target: "/" + t.Name(), Source: filepath.Join(c.kit.Root(), t.Name()), IsDir: true, ReadOnly: true})
		}
	}
	base := *c.inner.Root.Base
	base.Root = true
	places = append(places, driver.Place{Kind: driver.CoW, Target: rootAt, IsDir: true, Overlay: &base})
	for _, dir := range []string{"/proc", "/dev", "/sys", "/tmp"} { // to mount on, and one that programs count on
		places = append(places, driver.Place{Kind: driver.Dir, Target: rootAt + dir, Mode: 0o755})
	}
	for _, p := range c.inner.Root.Places {
		p.Target = rootAt + p.Target
		places = append(places, p)
	}
	add := func(at string, v any) error {
		text, err := json.Marshal(v)
		places = append(places, driver.Place{Kind: driver.File, Target: at, Content: text, Mode: 0o444})
		return err
	}
	m := c.machine()
	if c.agent == "" {
		o.Entry.Command = []string{vmmAt, "run", machineAt}
		u := c.inner.User
		err = add(machineAt, onceConfig{
			Machine: m, Command: c.inner.Entry.Command, Env: c.inner.Env, Workdir: c.inner.Workdir, UID: u.UID, GID: u.GID,
			Terminal: c.inner.Entry.Terminal != nil, StderrApart: c.inner.Entry.Terminal != nil && c.inner.Entry.Stdio[2] != nil, End: stateAt + "/" + endName,
		})
	} else {
		if err = add(machineAt, m); err == nil {
			err = add(cellAt, cellConfig{Inner: []string{vmmAt, machineAt}, Stream: "socket", Init: initAt, Control: stateAt + "/" + controlName})
		}
		o.Entry.Agent, o.Cell.Args = c.agent, []string{cellAt}
	}
	o.Root = driver.Root{Places: places}
	return o, err
}

// machine is what the virtual machine is, in the cell's own paths.
func (c *aCell) machine() machineConfig {
	host := c.inner.Hostname
	if host == "" {
		host = c.inner.ID
	}
	m := machineConfig{
		Monitor: "/" + c.kit.Manifest.Monitor, Firmware: "/usr/share/qemu", Vmlinux: kernelAt, Initramfs: firstAt,
		Root: rootAt, Memory: c.memory(), CPUs: c.cpus(), Host: host, Card: c.inner.Outlet,
	}
	if m.Pids = c.inner.Limits.Pids; m.Pids == 0 {
		m.Pids = c.inner.Defaults.Pids
	}
	for _, p := range c.inner.Root.Places {
		if p.Kind == driver.Bind && !strings.ContainsAny(p.Target, ",\n") {
			m.Live = append(m.Live, p.Target)
		}
	}
	return m
}

// machineConfig is machine.Config, onceConfig once.Config, and cellConfig cell.Config:
// what bailey links to start a sandbox knows only their words.
type machineConfig struct {
	Monitor   string   `json:"monitor"`
	Firmware  string   `json:"firmware"`
	Vmlinux   string   `json:"vmlinux"`
	Initramfs string   `json:"initramfs"`
	Root      string   `json:"root"`
	Live      []string `json:"live,omitempty"`
	Memory    int64    `json:"memory"`
	CPUs      int      `json:"cpus"`
	Pids      int64    `json:"pids,omitempty"`
	Host      string   `json:"host"`
	Card      bool     `json:"card,omitempty"`
}

type onceConfig struct {
	Machine     machineConfig `json:"machine"`
	Command     []string      `json:"command"`
	Env         []string      `json:"env"`
	Workdir     string        `json:"workdir"`
	UID         int           `json:"uid"`
	GID         int           `json:"gid"`
	Terminal    bool          `json:"terminal,omitempty"`
	StderrApart bool          `json:"stderr_apart,omitempty"`
	End         string        `json:"end"`
}

type cellConfig struct {
	Inner   []string `json:"inner"`
	Stream  string   `json:"stream"`
	Init    string   `json:"init"`
	Control string   `json:"control"`
}
