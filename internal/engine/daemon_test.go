//go:build linux

package engine

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/keeper"
)

// A test program is also a keeper and the engine that it starts.
const (
	keeperVariable = "BAILEY_TEST_KEEPER" // the data folder
	engineVariable = "BAILEY_TEST_ENGINE"
	socketName     = "test.sock"
	killAtName     = "kill-at" // a file: the number of the step before which the engine kills itself, once
	stepsName      = "steps"   // a file: all steps since the last order to kill
)

func init() {
	children[keeperVariable] = keeperMain
	children[engineVariable] = engineMain
}

func keeperMain() {
	home := os.Getenv(keeperVariable)
	os.Unsetenv(keeperVariable)
	os.Setenv(engineVariable, home)
	status, err := keeper.Run(keeper.Options{Home: home, Command: []string{"/proc/self/exe"}, Log: os.Stderr})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
	}
	os.Exit(status)
}

// order is what a test tells the engine in the other process.
type order struct {
	Op     string
	Ref    string
	Spec   api.SandboxSpec
	ToDisk bool
	Script string
	ID     string // of an exec

	Execute api.ExecuteRequest
	Exec    api.ExecSpec
	Data    []byte // of an exec's input
	From    int64  // in an exec's stdout
}

// ops are orders beside those of obey.
var ops = map[string]func(ctx context.Context, e *Engine, o order) (answer, error){}

// answer is what it says.
type answer struct {
	Sandbox   api.Sandbox
	Sandboxes []api.Sandbox
	Receipt   api.Receipt
	Orphans   []api.Orphan
	Out       string
	Pid       int
	Exec      api.Exec
	Data      []byte // of an exec's stdout
	Code      bailey.Code
	Err       string

	Session api.Session
	Log     []api.SessionEvent
	Result  api.ExecResult
}

// engineMain is an engine that does what it is told.
func engineMain() {
	home := os.Getenv(engineVariable)
	k, err := keeper.Inherited()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(3)
	}
	var once sync.Mutex
	seen := 0
	steps, _ := os.OpenFile(filepath.Join(home, stepsName), os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	trace := func(step string) {
		once.Lock()
		defer once.Unlock()
		fmt.Fprintln(steps, step)
		text, err := os.ReadFile(filepath.Join(home, killAtName))
		if err != nil {
			return
		}
		if seen++; strconv.Itoa(seen) == string(text) {
			os.Remove(filepath.Join(home, killAtName))
			unix.Kill(os.Getpid(), unix.SIGKILL)
			select {}
		}
	}
	dir := os.Getenv(programsVariable)
	e, err := Open(context.Background(), Options{Home: home, Keeper: k, Init: filepath.Join(dir, "bailey-init"), Daemon: filepath.Join(dir, "baileyd"), Trace: trace})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(4)
	}
	signals := make(chan os.Signal, 1)
	signal.Notify(signals, unix.SIGTERM, unix.SIGHUP)
	if k != nil {
		go func() {
			<-k.Done()
			os.Remove(filepath.Join(home, socketName))
			e.Close(context.Background())
			os.Exit(9)
		}()
	}
	go func() {
		<-signals
		if err := e.Close(context.Background()); err != nil {
			fmt.Fprintln(os.Stderr, "close:", err)
		}
		os.Exit(0)
	}()
	path := filepath.Join(home, socketName)
	os.Remove(path)
	l, err := net.Listen("unix", path)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(5)
	}
	for {
		conn, err := l.Accept()
		if err != nil {
			os.Exit(6)
		}
		go func() {
			defer conn.Close()
			var o order
			if json.NewDecoder(conn).Decode(&o) == nil {
				json.NewEncoder(conn).Encode(e.obey(o))
			}
		}()
	}
}

func (e *Engine) obey(o order) (a answer) {
	ctx := context.Background()
	var err error
	switch o.Op {
	case "create":
		a.Sandbox, err = e.Create(ctx, me, o.Spec)
	case "delete":
		err = e.Delete(ctx, me, o.Ref)
	case "pause":
		a.Receipt, err = e.Pause(ctx, me, o.Ref, api.PauseRequest{ToDisk: o.ToDisk})
	case "resume":
		a.Sandbox, err = e.Resume(ctx, me, o.Ref)
	case "show":
		a.Sandbox, err = e.Sandbox(ctx, me, o.Ref)
	case "list":
		a.Sandboxes, _, err = e.Sandboxes(ctx, me, api.SandboxQuery{})
	case "gc":
		a.Orphans, err = e.GC(ctx, Caller{Name: "uid:0", Admin: true}, true)
	case "sh":
		var u *use
		if u, err = e.awake(ctx, me, o.Ref); err != nil {
			break
		}
		defer u.release()
		a.Pid = u.gen.instance.Pid()
		var res guest.RunResult
		res, err = u.client.Run(ctx, guest.ExecSpec{ID: o.ID, Argv: []string{"sh", "-c", o.Script}, Env: u.gen.env, Dir: u.gen.workdir}, nil, 1<<20)
		a.Out = strings.TrimSuffix(string(res.Stdout), "\n")
		if err == nil && res.End.End().ExitCode != 0 {
			err = fmt.Errorf("%s: %s", res.End.End(), res.Stderr)
		}
	default:
		if op := ops[o.Op]; op != nil {
			a, err = op(ctx, e, o)
		}
	}
	if err != nil {
		a.Code, a.Err = bailey.CodeOf(err), err.Error()
	}
	return a
}

// daemon is a keeper with an engine in other processes.
type daemon struct {
	t        testing.TB
	home     string
	programs string // the folder of Bailey's
	keeper   *exec.Cmd
}

func startDaemon(t testing.TB) *daemon {
	t.Helper()
	return startDaemonOf(t, programs(t))
}

// startDaemonOf starts one with programs that lie elsewhere.
func startDaemonOf(t testing.TB, programs string) *daemon {
	t.Helper()
	d := &daemon{t: t, home: newHome(t), programs: programs}
	d.start()
	t.Cleanup(func() {
		d.end(unix.SIGTERM)
		d.reap()
	})
	return d
}

func (d *daemon) start() {
	d.t.Helper()
	d.keeper = exec.Command("/proc/self/exe")
	d.keeper.Env = append(os.Environ(), keeperVariable+"="+d.home, programsVariable+"="+d.programs)
	d.keeper.Stderr = os.Stderr
	if err := d.keeper.Start(); err != nil {
		d.t.Fatal(err)
	}
}

// end ends the keeper and all that it holds.
func (d *daemon) end(sig unix.Signal) {
	if d.keeper == nil {
		return
	}
	unix.Kill(d.keeper.Process.Pid, sig)
	late := time.AfterFunc(patience, func() {
		d.t.Error("the keeper did not leave")
		d.keeper.Process.Kill()
	})
	d.keeper.Wait()
	late.Stop()
	d.keeper = nil
}

// reap waits for orphans that came to this process.
func (d *daemon) reap() {
	for {
		var ws unix.WaitStatus
		pid, err := unix.Wait4(-1, &ws, unix.WNOHANG, nil)
		if pid <= 0 || err != nil {
			return
		}
	}
}

// errDied says that the engine died before it answered.
var errDied = errors.New("the engine died")

// tell gives an order once, to an engine that is up.
func (d *daemon) tell(o order) (answer, error) {
	d.t.Helper()
	var conn net.Conn
	deadline := time.Now().Add(patience)
	for {
		var err error
		if conn, err = net.Dial("unix", filepath.Join(d.home, socketName)); err == nil {
			break
		}
		if time.Now().After(deadline) {
			d.t.Fatalf("no engine comes up: %v", err)
		}
		time.Sleep(5 * time.Millisecond)
	}
	defer conn.Close()
	var a answer
	if err := json.NewEncoder(conn).Encode(o); err != nil {
		return a, errDied
	}
	conn.SetReadDeadline(time.Now().Add(patience))
	if err := json.NewDecoder(conn).Decode(&a); err != nil {
		if ne, ok := err.(net.Error); ok && ne.Timeout() {
			if pid := d.enginePid(); pid > 1 {
				unix.Kill(pid, unix.SIGQUIT) // it says on standard error what it is at
			}
			time.Sleep(time.Second)
			d.t.Fatalf("%+v: no answer", o)
		}
		return a, errDied
	}
	return a, nil
}

// do is tell for what must not fail.
func (d *daemon) do(o order) answer {
	d.t.Helper()
	a, err := d.tell(o)
	for i := 0; err == errDied && i < 5 && (o.Op == "list" || o.Op == "show" || o.Op == "gc"); i++ {
		a, err = d.tell(o) // it reached one that was dying
	}
	if err != nil || a.Err != "" {
		d.t.Fatalf("%+v: %v %s", o, err, a.Err)
	}
	return a
}

// killAt has the engine killed before a step, counted from now; 0 counts anew and
// kills nobody.
func (d *daemon) killAt(n int) {
	d.t.Helper()
	os.Truncate(filepath.Join(d.home, stepsName), 0)
	path := filepath.Join(d.home, killAtName)
	os.Remove(path)
	if n > 0 {
		if err := os.WriteFile(path+".new", []byte(strconv.Itoa(n)), 0o600); err != nil {
			d.t.Fatal(err)
		}
		os.Rename(path+".new", path)
	}
}

// steps gives those since killAt.
func (d *daemon) steps() []string {
	text, _ := os.ReadFile(filepath.Join(d.home, stepsName))
	return strings.Split(strings.TrimSpace(string(text)), "\n")
}

// enginePid gives the process of the engine, 0 if there is none now.
func (d *daemon) enginePid() int {
	self, _ := os.Readlink("/proc/self/exe")
	lists, _ := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/children", d.keeper.Process.Pid))
	for _, l := range lists {
		text, _ := os.ReadFile(l)
		for _, f := range strings.Fields(string(text)) {
			if exe, _ := os.Readlink("/proc/" + f + "/exe"); exe == self {
				n, _ := strconv.Atoi(f)
				return n
			}
		}
	}
	return 0
}

// signal sends signals to the engine.
func (d *daemon) signal(pid int, signals ...unix.Signal) {
	d.t.Helper()
	if pid <= 1 {
		d.t.Fatal("there is no engine to signal")
	}
	for _, sig := range signals {
		if err := unix.Kill(pid, sig); err != nil {
			d.t.Fatal(err)
		}
	}
}

// clean fails if anything is left of sandboxes.
func (d *daemon) clean() {
	d.t.Helper()
	if a := d.do(order{Op: "list"}); len(a.Sandboxes) > 0 {
		d.t.Errorf("left in the list: %+v", a.Sandboxes)
	}
	eventually(d.t, 10*time.Second, "the folder of sandboxes is empty", func() bool {
		list, err := os.ReadDir(filepath.Join(d.home, sandboxesDir))
		return err == nil && len(list) == 0
	})
	if a := d.do(order{Op: "gc"}); len(a.Orphans) > 0 {
		d.t.Errorf("orphans: %+v", a.Orphans)
	}
}

// stable are the states in which nothing is being done.
var stable = []api.State{api.StateRunning, api.StatePaused, api.StateStopped, api.StateLost}

func isStable(s api.State) bool { return slices.Contains(stable, s) }
