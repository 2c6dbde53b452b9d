//go:build linux

package escape

import (
	"bufio"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/gvisor"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/hostview"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// Suite is what all attempts share.
type Suite struct {
	Dir    string // a folder of the suite's own that everybody may look into
	Attack string // the attacking program
	State  string // the driver's
	Peers  []int  // listening sockets in a network beside the suite's; see PeerNetwork

	mu sync.Mutex
}

// field is where one run of an attempt takes place.
type field struct {
	suite *Suite
	mode  Mode
	omit  []Wall
	nonce string // unique to the run: what must not become known, or not be written

	dir  string // everything of this run
	ws   string // shown writable, at its own path
	view string // shown read-only, at its own path
	home string // not shown: a home folder
	spec driver.Spec

	channel *net.UnixConn // to the attacker
	log     strings.Builder
	end     bailey.End
	undo    []func()
	left    error          // why something of the run could not be removed
	slots   map[string]any // what arrange leaves for landed
}

// message is what an attacker hands over.
type message struct {
	text  string
	files []*os.File
	pid   int // the sender, as the host numbers it
}

// Result says how a run went.
type Result struct {
	Landed  bool
	Started bool  // the attacker did run
	Refused error // the sandbox could not be made
	Words   []string
	Log     string
	End     bailey.End
}

// within bounds one run. It is generous: nothing waits for it but a hang.
var within = testneeds.Slower(60 * time.Second)

var serial atomic.Int64

// Run makes one attempt, without the given walls.
func (s *Suite) Run(a *Attempt, m Mode, omit []Wall) (r Result, err error) {
	// A session keyring belongs to a thread, and the sandbox inherits this one's.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	f := &field{suite: s, mode: m, omit: omit, slots: map[string]any{}}
	defer func() {
		for _, u := range slices.Backward(f.undo) {
			u()
		}
		if err == nil && f.left != nil {
			err = fmt.Errorf("clean up: %w", f.left)
		}
	}()
	if err := f.layOut(); err != nil {
		return r, fmt.Errorf("lay out the field: %w", err)
	}
	if err := a.arrange(f); err != nil {
		return r, fmt.Errorf("arrange: %w", err)
	}
	if err := f.fight(a, &r); err != nil {
		return r, err
	}
	if a.landed(f, nil) {
		r.Landed = true
	}
	r.Log, r.End = f.log.String(), f.end
	return r, nil
}

// later does something when the run is over.
func (f *field) later(what func()) { f.undo = append(f.undo, what) }

// layOut makes the folders of a run. Whoever can reach them may do everything with
// them: only the walls of the sandbox stand in the way.
func (f *field) layOut() error {
	buf := make([]byte, 8)
	rand.Read(buf)
	f.nonce = "canary-" + hex.EncodeToString(buf)
	f.dir = filepath.Join(f.suite.Dir, fmt.Sprintf("run-%d-%d", os.Getuid(), serial.Add(1)))
	f.ws, f.view, f.home = filepath.Join(f.dir, "ws"), filepath.Join(f.dir, "view"), filepath.Join(f.dir, "home")
	f.later(func() { f.left = folder.RemoveTree(f.dir) })
	for _, d := range []string{f.dir, f.ws, f.view, f.home} {
		if err := f.folder(d); err != nil {
			return err
		}
	}
	return f.describe()
}

// folder makes a folder that is open to all.
func (f *field) folder(path string) error {
	if err := os.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return os.Chmod(path, 0o777)
}

// file makes a file that is open to all.
func (f *field) file(path, content string) (string, error) {
	if err := f.folder(filepath.Dir(path)); err != nil {
		return "", err
	}
	if err := os.WriteFile(path, []byte(content), 0o666); err != nil {
		return "", err
	}
	return path, os.Chmod(path, 0o666)
}

// secret makes a file of the host that the sandbox must not know.
func (f *field) secret() (string, error) {
	return f.file(filepath.Join(f.home, ".ssh", "id_ed25519"), f.nonce+"\n")
}

// attack sets what the attacker does.
func (f *field) attack(args ...string) error {
	f.spec.Entry.Command = append([]string{f.suite.Attack}, args...)
	return nil
}

// omits says whether a wall is left out in this run.
func (f *field) omits(w Wall) bool { return slices.Contains(f.omit, w) }

func (f *field) driverOmits() (list []linux.Protection) {
	for _, w := range f.omit {
		if !slices.Contains(notDriver, w) {
			list = append(list, w)
		}
	}
	return list
}

// driver gives the driver of the run's level.
func (f *field) driver(omit []linux.Protection) driver.Driver {
	d := linux.New(linux.Options{State: f.suite.State, Omit: omit})
	if f.mode.Level != bailey.IsolationGVisor {
		return d
	}
	return gvisor.New(gvisor.Options{Outer: d, State: f.suite.State,
		Runsc: filepath.Join(f.suite.Dir, "runsc"), Cell: filepath.Join(f.suite.Dir, "bailey-cell")})
}

// neighbour makes another sandbox of the same kind, with all its walls.
func (f *field) neighbour(command ...string) (driver.Instance, error) {
	other := &field{suite: f.suite, mode: f.mode, slots: map[string]any{}}
	f.later(func() {
		for _, u := range slices.Backward(other.undo) {
			u()
		}
	})
	if err := other.layOut(); err != nil {
		return nil, err
	}
	other.spec.Entry.Command = command
	in, err := f.driver(nil).Create(context.Background(), other.spec)
	if err == nil {
		f.later(func() { in.Destroy(context.Background()) })
	}
	return in, err
}

// environment gives what the process level makes of a caller's environment.
func (f *field) environment(caller []string) ([]string, error) {
	if f.omits(ViewEnv) {
		return caller, nil
	}
	view, err := hostview.Compute(hostview.Input{Home: f.home, Username: "root", Env: caller, Workspace: f.ws})
	return view.Env, err
}

// victim starts a process of the host that holds the run's secret in its
// arguments, environment, memory and as an open file.
func (f *field) victim() (pid int, addr, length, fd string, err error) {
	path, err := f.secret()
	if err != nil {
		return 0, "", "", "", err
	}
	cmd := exec.Command(f.suite.Attack, "victim", f.nonce, path)
	cmd.Env = []string{"SECRET=" + f.nonce}
	in, err := cmd.StdinPipe()
	if err != nil {
		return 0, "", "", "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return 0, "", "", "", err
	}
	if err := cmd.Start(); err != nil {
		return 0, "", "", "", err
	}
	f.later(func() { in.Close(); cmd.Process.Kill(); cmd.Wait() })
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return 0, "", "", "", fmt.Errorf("the victim did not start: %w", err)
	}
	_, err = fmt.Sscan(line, &addr, &length, &fd)
	if err != nil {
		return 0, "", "", "", err
	}
	pidfd, err := unix.PidfdOpen(cmd.Process.Pid, 0)
	if err != nil {
		return 0, "", "", "", err
	}
	f.later(func() { unix.Close(pidfd) })
	f.slots["victim"], f.slots["pidfd"] = cmd.Process.Pid, pidfd
	return cmd.Process.Pid, addr, length, fd, err
}

// fight makes the sandbox and follows the attacker to the end.
func (f *field) fight(a *Attempt, r *Result) error {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return err
	}
	unix.SetsockoptInt(pair[0], unix.SOL_SOCKET, unix.SO_PASSCRED, 1)
	ours, theirs := os.NewFile(uintptr(pair[0]), "channel"), os.NewFile(uintptr(pair[1]), "attacker's channel")
	defer theirs.Close()
	conn, err := net.FileConn(ours)
	ours.Close()
	if err != nil {
		return err
	}
	f.channel = conn.(*net.UnixConn)
	defer f.channel.Close()
	logR, logW, err := os.Pipe()
	if err != nil {
		return err
	}
	defer logR.Close()
	f.spec.Entry.Stdio[1], f.spec.Entry.Stdio[2] = theirs, logW

	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	in, err := f.driver(f.driverOmits()).Create(ctx, f.spec)
	theirs.Close()
	logW.Close()
	if err != nil {
		r.Refused = err
		return nil
	}
	logged := make(chan struct{})
	go func() {
		defer close(logged)
		buf := make([]byte, 4096)
		for {
			n, err := logR.Read(buf)
			if f.log.Len() < 1<<20 {
				f.log.Write(buf[:n])
			}
			if err != nil {
				return
			}
		}
	}()
	f.slots["pid1"] = in.Pid()
	if out := in.Outlet(); out != nil {
		f.slots["outlet"] = out
		defer out.TCP.Close()
		defer out.UDP.Close()
	}
	go func() {
		select {
		case <-in.Done():
		case <-ctx.Done():
			in.Kill(bailey.EndTimeout)
		}
		// Where processes outlive pid 1, in control runs, they are not waited for.
		f.channel.SetReadDeadline(time.Now().Add(time.Second))
	}()
	for {
		m, err := f.receive()
		if err != nil {
			break
		}
		r.Words = append(r.Words, fmt.Sprintf("%.200q (%d descriptors)", m.text, len(m.files)))
		r.Started = true
		if a.landed(f, m) {
			r.Landed = true
		}
		for _, file := range m.files {
			file.Close()
		}
		f.channel.Write([]byte("go on"))
	}
	f.channel.Close() // whatever waits for an answer gives up
	<-in.Done()
	f.end = in.End()
	if err := in.Destroy(context.Background()); err != nil {
		return fmt.Errorf("destroy: %w", err)
	}
	logR.SetReadDeadline(time.Now().Add(time.Second))
	<-logged
	return ctx.Err()
}

// receive takes the next message.
func (f *field) receive() (*message, error) {
	data, oob := make([]byte, 64<<10), make([]byte, 4096)
	n, nOOB, flags, _, err := f.channel.ReadMsgUnix(data, oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	if flags&unix.MSG_CTRUNC != 0 {
		return nil, errors.New("descriptors were lost")
	}
	m := &message{text: string(data[:n])}
	msgs, err := unix.ParseSocketControlMessage(oob[:nOOB])
	if err != nil {
		return nil, err
	}
	for _, c := range msgs {
		switch c.Header.Type {
		case unix.SCM_CREDENTIALS:
			cred, err := unix.ParseUnixCredentials(&c)
			if err != nil {
				return nil, err
			}
			m.pid = int(cred.Pid)
		case unix.SCM_RIGHTS:
			fds, err := unix.ParseUnixRights(&c)
			if err != nil {
				return nil, err
			}
			for _, fd := range fds {
				unix.CloseOnExec(fd)
				m.files = append(m.files, os.NewFile(uintptr(fd), "loot"))
			}
		}
	}
	return m, nil
}
