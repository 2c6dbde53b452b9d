package gvisor

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strconv"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/cell"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// Where things lie in a cell's own small root. It is read-only but for stateAt.
const (
	rootAt   = "/rootfs" // the sandbox's root
	stateAt  = "/state"  // the cell's folder on the host: runsc's state, the socket of the cell's control
	runscAt  = "/runsc"
	bundleAt = "/bundle" // with config.json
	configAt = "/cell.json"
	cellAt   = "/bailey-cell" // for one command; of a sandbox that stays it is the first process
	// initAt is bailey-init, as the sandbox sees it. /dev is made by gVisor, and what
	// lies there is in no layer.
	initAt = "/dev/.bailey-init"

	controlName = "control"
	logName     = "runsc.log" // what runsc says when it fails, one JSON object each
	// name is the sandbox's name for runsc, whose state folder has no other.
	name = "sandbox"
)

// aCell is a cell that is being written down.
type aCell struct {
	inner driver.Spec
	runsc string
	agent string // bailey-cell
	dir   string // its folder on the host
	// single says that there is one id for all that is in the cell.
	single bool
	// memory is the folder on the host that the sandbox goes on from, or "".
	memory string
}

// newCell makes a cell's folder.
func (d *Driver) newCell(spec driver.Spec) (*aCell, error) {
	c := &aCell{inner: spec}
	var err error
	if c.runsc, err = d.runsc(); err != nil {
		return nil, err
	}
	c.single = !d.opt.Outer.SeveralIDs()
	if spec.Entry.Terminal == nil {
		if c.agent, err = program(d.opt.Cell, "bailey-cell"); err != nil {
			return nil, bailey.Errorf(bailey.CodeIsolationUnavailable, "use the level gvisor", "install all of Bailey's programs in one folder", "bailey-cell is not there: %w", err)
		}
	}
	if c.dir, err = folder(spec); err == nil {
		err = errors.Join(os.RemoveAll(c.dir), os.RemoveAll(c.dir+".still")) // of an earlier life of the sandbox, whose holder was killed
	}
	if err == nil {
		err = os.Mkdir(c.dir, 0o700)
	}
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, "make the cell's folder", "", "%w", err)
	}
	return c, nil
}

// folder gives a cell's folder on the host, which the sandbox's folder is to have.
func folder(spec driver.Spec) (string, error) {
	if spec.Own == "" {
		return "", errors.New("the sandbox has no folder of its own")
	}
	// Resolved, because the outer driver follows no links.
	parent, err := filepath.EvalSymlinks(filepath.Dir(spec.Own))
	return filepath.Join(parent, filepath.Base(spec.Own)), err
}

func (c *aCell) remove() { os.RemoveAll(c.dir) }

// spec gives the cell as the outer driver builds it.
func (c *aCell) spec() (driver.Spec, error) {
	o := c.inner
	o.Level = bailey.IsolationContainer
	o.Workdir = "/"
	o.Cell = &driver.Cell{Link: o.Outlet}
	o.Root = driver.Root{Places: []driver.Place{
		{Kind: driver.Dir, Target: "/tmp", Mode: 0o755}, // where the sentry makes its own root
		{Kind: driver.Bind, Target: runscAt, Source: c.runsc, ReadOnly: true},
		{Kind: driver.Scratch, Target: stateAt, Source: c.dir, IsDir: true},
	}}
	base := *c.inner.Root.Base
	base.Root = true
	places := append([]driver.Place{{Kind: driver.CoW, Target: rootAt, IsDir: true, Overlay: &base}}, innerPlaces()...)
	places = append(places, c.inner.Root.Places...)
	for i := range places {
		if i > 0 {
			places[i].Target = rootAt + places[i].Target
		}
	}
	o.Root.Places = append(o.Root.Places, places...)
	if c.memory != "" {
		o.Root.Places = append(o.Root.Places, driver.Place{Kind: driver.Bind, Target: memoryAt, Source: c.memory, IsDir: true, ReadOnly: true})
	}
	config := cell.Config{Inner: c.command(), Restored: c.memory != ""}
	switch {
	case c.inner.Entry.Agent != "":
		o.Root.Places = append(o.Root.Places, driver.Place{Kind: driver.Bind, Target: rootAt + initAt, Source: c.inner.Entry.Agent, ReadOnly: true})
		config.Stream, config.Init, config.Control = cell.StreamStdio, initAt, stateAt+"/"+controlName
		o.Entry.Agent, o.Cell.Args = c.agent, []string{configAt}
	case c.inner.Entry.Terminal != nil:
		o.Entry.Command, o.Env = config.Inner, nil // with a terminal, runsc hands signals on itself
	default:
		o.Root.Places = append(o.Root.Places, driver.Place{Kind: driver.Bind, Target: cellAt, Source: c.agent, ReadOnly: true})
		config.Signal = []string{runscAt, "--root=" + stateAt, "kill", name}
		o.Entry.Command, o.Env = []string{cellAt, "run", configAt}, nil
	}
	text, err := json.Marshal(config)
	if err != nil {
		return o, err
	}
	o.Root.Places = append(o.Root.Places, driver.Place{Kind: driver.File, Target: configAt, Content: text, Mode: 0o444})
	text, err = json.Marshal(c.oci())
	if err != nil {
		return o, err
	}
	o.Root.Places = append(o.Root.Places, driver.Place{Kind: driver.File, Target: bundleAt + "/config.json", Content: text, Mode: 0o444})
	return o, nil
}

// innerPlaces are the folders of the sandbox's root that gVisor mounts on, and /tmp:
// gVisor would put one of its own memory over an empty one, which no layer has.
func innerPlaces() (places []driver.Place) {
	for _, dir := range []string{"/proc", "/dev", "/sys", "/tmp"} {
		places = append(places, driver.Place{Kind: driver.Dir, Target: dir, Mode: 0o755})
	}
	return places
}

// command is runsc's command line.
//
// Without directfs, gVisor's kernel reaches files only through its file server, and
// runs as nobody in a user namespace of its own. That takes a second id: where the
// caller has but one, the kernel opens files itself, with the rights of the cell's root.
func (c *aCell) command() []string {
	network := "none"
	if c.inner.Outlet {
		network = "sandbox"
	}
	act := []string{"run"}
	if c.memory != "" {
		act = []string{"restore", "--image-path=" + memoryAt}
	}
	return append(append([]string{runscAt, "--root=" + stateAt, "--log=" + stateAt + "/" + logName, "--log-format=json", "--ignore-cgroups", "--overlay2=none", "--network=" + network,
		"--file-access=exclusive", "--host-uds=none", "--gofer-network-namespace=new", "--host-settings=ignore", "--platform=systrap", "--directfs=" + strconv.FormatBool(c.single)},
		act...), "--bundle="+bundleAt, name)
}
