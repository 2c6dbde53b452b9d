package gvisor_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"io/fs"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// stays makes a sandbox that stays, and opens the conversation with it.
func (r *rig) stays(s driver.Spec) (driver.Staying, *guest.Client) {
	r.t.Helper()
	s.Entry.Command, s.Entry.Agent = nil, filepath.Join(programs(r.t), "bailey-init")
	in, err := r.d.Create(r.t.Context(), s)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() {
		if err := in.Destroy(context.Background()); err != nil {
			r.t.Error(err)
		}
	})
	return in.(driver.Staying), r.speak(in)
}

func (r *rig) speak(in driver.Instance) *guest.Client {
	r.t.Helper()
	socket, err := guest.NewSocket(in.Agent())
	if err != nil {
		r.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	c, err := guest.NewClient(ctx, socket, guest.ClientOptions{})
	if err != nil {
		select {
		case <-in.Done():
			r.t.Logf("%+v", in.End())
		default:
		}
		r.t.Fatal(err)
	}
	r.t.Cleanup(func() { c.Close() })
	return c
}

// says runs a command inside and gives its output.
func says(t testing.TB, c *guest.Client, argv ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), within)
	defer cancel()
	p, err := c.Exec(ctx, guest.ExecSpec{ID: "x" + strconv.FormatInt(time.Now().UnixNano(), 36), Argv: argv, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	out, err := io.ReadAll(p.Stdout())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := p.Wait(ctx); err != nil {
		t.Fatal(err)
	}
	return string(out)
}

func TestStays(t *testing.T) {
	r := newRig(t)
	in, c := r.stays(r.spec())
	if out := says(t, c, "uname", "-r"); out != "4.19.0-gvisor\n" {
		t.Errorf("%q", out)
	}
	says(t, c, "sh", "-c", "echo kept >/root/f")
	if b, err := os.ReadFile(filepath.Join(r.layer, "upper/root/f")); string(b) != "kept\n" {
		t.Errorf("%q %v", b, err)
	}
	err := in.Attach(t.Context(), driver.Place{Kind: driver.Bind, Source: r.root, Target: "/more", IsDir: true})
	if bailey.CodeOf(err) != bailey.CodeNotAvailable {
		t.Error(err)
	}
	if s, err := in.Stats(t.Context()); err != nil || s.Pids == 0 {
		t.Errorf("%+v %v", s, err)
	}
	if err := in.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(r.state, "own")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
}

func TestDial(t *testing.T) {
	r := newRig(t)
	in, c := r.stays(r.spec())
	if _, err := in.Dial(t.Context(), 4000); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	p, err := c.Exec(t.Context(), guest.ExecSpec{ID: "server", Argv: []string{"/bin/sh", "-c", "echo ready; exec nc -l -p 4000 -e cat"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	var conn net.Conn
	for deadline := time.Now().Add(within); conn == nil; {
		if conn, err = in.Dial(t.Context(), 4000); err != nil && (!errors.Is(err, syscall.ECONNREFUSED) || time.Now().After(deadline)) {
			t.Fatal(err)
		}
	}
	defer conn.Close()
	io.WriteString(conn, "through")
	conn.(interface{ CloseWrite() error }).CloseWrite()
	if b, err := io.ReadAll(conn); string(b) != "through" {
		t.Errorf("%q %v", b, err)
	}
}

// ticks gives the processor time of a process and all below it, in clock ticks.
func ticks(t *testing.T, in driver.Instance) (sum int) {
	for _, pid := range below(t, in.Pid()) {
		b, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
		if err != nil {
			continue
		}
		f := strings.Fields(string(b[bytes.LastIndexByte(b, ')')+1:]))
		u, _ := strconv.Atoi(f[11])
		s, _ := strconv.Atoi(f[12])
		sum += u + s
	}
	return sum
}

// below gives a process and its descendants.
func below(t *testing.T, pid int) []int {
	list := []int{pid}
	for i := 0; i < len(list); i++ {
		proc := "/proc/" + strconv.Itoa(list[i])
		threads, _ := os.ReadDir(proc + "/task")
		for _, th := range threads {
			b, _ := os.ReadFile(proc + "/task/" + th.Name() + "/children")
			for _, c := range strings.Fields(string(b)) {
				n, _ := strconv.Atoi(c)
				list = append(list, n)
			}
		}
	}
	return list
}

// A paused sandbox uses no processor, also one that has something to do, and goes on afterwards.
func TestPause(t *testing.T) {
	r := newRig(t)
	in, c := r.stays(r.spec())
	p, err := c.Exec(t.Context(), guest.ExecSpec{ID: "busy", Argv: []string{"/bin/sh", "-c", "while :; do :; done"}, Env: []string{"PATH=/bin"}})
	if err != nil {
		t.Fatal(err)
	}
	defer p.Close()
	for range 3 {
		ctx, cancel := context.WithTimeout(t.Context(), within)
		if err := in.Pause(ctx); err != nil {
			t.Fatal(err)
		}
		before := ticks(t, in)
		for end := time.Now().Add(100 * time.Millisecond); time.Now().Before(end); { // something else uses it
		}
		if after := ticks(t, in); after != before {
			t.Errorf("it used %d ticks", after-before)
		}
		if err := in.Resume(ctx); err != nil {
			t.Fatal(err)
		}
		cancel()
		if out := says(t, c, "echo", "on"); out != "on\n" {
			t.Errorf("%q", out)
		}
	}
}

// Whatever of it is killed, the sandbox ends, and says why.
func TestLost(t *testing.T) {
	for _, victim := range []string{"runsc-sandbox", "runsc-gofer", "bailey-cell", "runsc"} {
		t.Run(victim, func(t *testing.T) {
			r := newRig(t)
			in, c := r.stays(r.spec())
			says(t, c, "true")
			found := false
			for _, pid := range below(t, in.Pid()) {
				b, _ := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/cmdline")
				name, _, _ := strings.Cut(string(b), "\x00")
				if filepath.Base(name) == victim {
					found = true
					syscall.Kill(pid, syscall.SIGKILL)
					break
				}
			}
			if !found {
				t.Fatal("there is none")
			}
			select {
			case <-in.Done():
			case <-time.After(within):
				t.Fatal("it does not end")
			}
			if e := in.End(); e.Reason != bailey.EndHostLost || e.Detail == "" {
				t.Errorf("%+v", e)
			}
		})
	}
}

// Whoever is given what was kept of a sandbox has the same one with the same processes,
// and ends it.
func TestAdopt(t *testing.T) {
	r := newRig(t)
	s := r.spec()
	s.Outlet = true
	s.Entry.Command, s.Entry.Agent = nil, filepath.Join(programs(t), "bailey-init")
	made, err := r.d.Create(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	in := made.(driver.Staying)
	rec, kept := in.Record(), map[string]*os.File{}
	for name, f := range in.Held() {
		raw, err := f.SyscallConn()
		if err != nil {
			t.Fatal(err)
		}
		raw.Control(func(fd uintptr) {
			if n, err := syscall.Dup(int(fd)); err == nil {
				syscall.CloseOnExec(n)
				kept[name] = os.NewFile(uintptr(n), name)
			}
		})
	}
	c := r.speak(in)
	says(t, c, "sh", "-c", "echo x >/dev/shm/kept")
	c.Close()
	in.Release()

	again, err := r.other().Adopt(t.Context(), s, rec, driver.Kept{Files: kept})
	if err != nil {
		t.Fatal(err)
	}
	c = r.speak(again)
	if out := says(t, c, "cat", "/dev/shm/kept"); out != "x\n" {
		t.Errorf("%q", out)
	}
	if _, err := again.(driver.Staying).Dial(t.Context(), 4000); !errors.Is(err, syscall.ECONNREFUSED) {
		t.Error(err)
	}
	if out := again.Outlet(); out == nil {
		t.Error("its way out is gone")
	} else {
		out.TCP.Close()
		out.UDP.Close()
	}
	if err := again.Destroy(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(filepath.Join(r.state, "own")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its folder is left: %v", err)
	}
	rec.Level = bailey.IsolationContainer
	if _, err := r.other().Adopt(t.Context(), s, rec, driver.Kept{}); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Error(err)
	}
}
