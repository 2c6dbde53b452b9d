package linux

import (
	"context"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// Its maker is killed: the same processes go on, and what ran is found again.
func TestAdopt(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		y := newYard(t, level)
		y.Outlet = true
		m := y.make(t)
		m.kill()
		in, err := y.driver().Adopt(context.Background(), y.spec(), m.record, m.kept())
		if err != nil {
			t.Fatal(err)
		}
		defer in.Destroy(context.Background())
		if in.Pid() != m.record.Pid {
			t.Errorf("pid %d, and it was %d", in.Pid(), m.record.Pid)
		}
		if again := in.(driver.Staying).Record(); string(again.Data) != string(m.record.Data) || again.Pid != m.record.Pid {
			t.Errorf("%s\n%s", again.Data, m.record.Data)
		}
		held := in.(driver.Staying).Held()
		for _, name := range []string{driver.HeldAgent, driver.HeldPidfd, driver.HeldOutletTCP, driver.HeldOutletUDP} {
			if held[name] == nil {
				t.Errorf("%s is not held", name)
			}
		}
		if (held[driver.HeldIDs] != nil) != (os.Geteuid() == 0) {
			t.Error("the lock of the ids")
		}
		out := in.Outlet()
		if out == nil || in.Outlet() != nil {
			t.Fatal("the way out is not given once")
		}
		out.TCP.Close()
		out.UDP.Close()

		c := speak(t, in)
		ctx, cancel := context.WithTimeout(context.Background(), testneeds.Slower(10*time.Second))
		defer cancel()
		list, err := c.Execs(ctx)
		if err != nil || len(list) != 1 || list[0].ID != "long" {
			t.Fatalf("%v %+v", err, list)
		}
		p, err := c.Attach(ctx, "long", guest.AttachOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.WriteString(p.Stdin(), "after\n"); err != nil {
			t.Fatal(err)
		}
		text, err := io.ReadAll(p.Stdout())
		if err != nil || string(text) != "before\nafter\n" {
			t.Errorf("%v %q", err, text)
		}
		if end, err := p.Wait(ctx); err != nil || end.ExitCode != 3 {
			t.Errorf("%v %+v", err, end)
		}
		if err := in.Pause(ctx); err != nil && bailey.CodeOf(err) != bailey.CodeNotAvailable {
			t.Error(err)
		} else if err == nil {
			if err := in.Resume(ctx); err != nil {
				t.Error(err)
			}
		}
		if _, err := in.Stats(ctx); err != nil {
			t.Error(err)
		}
		if err := c.Shutdown(ctx, 0); err != nil {
			t.Error(err)
		}
		if e := await(t, in); e.Reason != bailey.EndExit {
			t.Errorf("%+v", e)
		}
		for range 2 {
			if err := in.Destroy(context.Background()); err != nil {
				t.Error(err)
			}
		}
		nothingLeft(t, m.record)
	})
}

// nothingLeft says what is left of a sandbox on the host.
func nothingLeft(t *testing.T, r driver.Record) {
	t.Helper()
	if err := syscall.Kill(r.Pid, 0); err == nil {
		t.Errorf("process %d is there", r.Pid)
	}
	filepath.WalkDir("/sys/fs/cgroup", func(p string, d os.DirEntry, err error) error {
		if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), "bailey-"+r.ID+"@") {
			t.Errorf("%s is left", p)
		}
		return nil
	})
}

// It is adopted frozen, stays frozen, and is destroyed frozen or goes on.
func TestAdoptFrozen(t *testing.T) {
	for _, goOn := range []bool{true, false} {
		t.Run(strconv.FormatBool(goOn), func(t *testing.T) {
			y := newYard(t, bailey.IsolationContainer)
			if !y.driver().cgroupHost().CanFreeze() {
				t.Skip(testneeds.Cgroups.Reason("none can freeze"))
			}
			m := y.make(t)
			m.kill()
			k := m.kept()
			ctx := context.Background()
			// A second adoption, as the first daemon paused it before it died.
			first, err := y.driver().Adopt(ctx, y.spec(), m.record, driver.Kept{Files: duplicates(t, k.Files), Wait: m.reap})
			if err != nil {
				t.Fatal(err)
			}
			if err := first.Pause(ctx); err != nil {
				t.Fatal(err)
			}
			in, err := y.driver().Adopt(ctx, y.spec(), m.record, k)
			if err != nil {
				t.Fatal(err)
			}
			select {
			case <-in.Done():
				t.Fatalf("%+v", in.End())
			default:
			}
			if goOn {
				if err := in.Resume(ctx); err != nil {
					t.Fatal(err)
				}
				if out, _ := sh(t, speak(t, in), "echo here"); out != "here\n" {
					t.Errorf("%q", out)
				}
			}
			if err := in.Destroy(ctx); err != nil {
				t.Error(err)
			}
			await(t, first)
			nothingLeft(t, m.record)
		})
	}
}

func duplicates(t *testing.T, files map[string]*os.File) map[string]*os.File {
	list := map[string]*os.File{}
	for name, f := range files {
		fd, err := dup(f)
		if err != nil {
			t.Fatal(err)
		}
		list[name] = os.NewFile(uintptr(fd), name)
	}
	return list
}

// What has ended meanwhile is an Instance that says so and can be destroyed.
func TestAdoptEnded(t *testing.T) {
	for _, tc := range []struct {
		name string
		// change is done between the maker's death and the adoption.
		change func(t *testing.T, m *maker, k *driver.Kept)
		want   bailey.Reason
	}{
		{"killed", func(t *testing.T, m *maker, k *driver.Kept) { syscall.Kill(m.record.Pid, syscall.SIGKILL) }, bailey.EndHostLost},
		{"killed, status lost", func(t *testing.T, m *maker, k *driver.Kept) {
			syscall.Kill(m.record.Pid, syscall.SIGKILL)
			m.reap(t.Context())
			k.Wait = nil
		}, bailey.EndHostLost},
		{"all lost", func(t *testing.T, m *maker, k *driver.Kept) {
			for _, f := range k.Files {
				f.Close()
			}
			m.reap(t.Context()) // by the lease
			k.Files, k.Wait = nil, nil
		}, bailey.EndHostLost},
		{"no lease", func(t *testing.T, m *maker, k *driver.Kept) {
			k.Files[driver.HeldAgent].Close()
			delete(k.Files, driver.HeldAgent)
		}, bailey.EndHostLost},
		{"no lease, and it has ended", func(t *testing.T, m *maker, k *driver.Kept) {
			k.Files[driver.HeldAgent].Close()
			delete(k.Files, driver.HeldAgent)
			raw, err := k.Files[driver.HeldPidfd].SyscallConn()
			if err != nil {
				t.Fatal(err)
			}
			for gone := false; !gone; {
				if err := raw.Control(func(fd uintptr) { gone = over(fd) }); err != nil {
					t.Fatal(err)
				}
			}
		}, bailey.EndHostLost},
		{"another process of its number", func(t *testing.T, m *maker, k *driver.Kept) {
			for _, f := range k.Files {
				f.Close()
			}
			m.reap(t.Context())
			k.Files, k.Wait = nil, nil
			m.record.Pid = os.Getpid()
		}, bailey.EndHostLost},
	} {
		t.Run(tc.name, func(t *testing.T) {
			y := newYard(t, bailey.IsolationContainer)
			m := y.make(t)
			m.kill()
			k := m.kept()
			tc.change(t, m, &k)
			in, err := y.driver().Adopt(context.Background(), y.spec(), m.record, k)
			if err != nil {
				t.Fatal(err)
			}
			if e := await(t, in); e.Reason != tc.want {
				t.Errorf("%+v", e)
			}
			in.Kill(bailey.EndUser)
			for range 2 {
				if err := in.Destroy(context.Background()); err != nil {
					t.Error(err)
				}
			}
			m.record.Pid = 1 << 30
			nothingLeft(t, m.record)
		})
	}
}

// The ids stay taken for as long as somebody keeps the lock.
func TestAdoptedIDsStayTaken(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("needs root: ranges of ids")
	}
	y := newYard(t, bailey.IsolationContainer)
	m := y.make(t)
	base := m.record
	m.kill()
	k := m.kept()
	free := func() bool {
		n := (idsOf(t, base) - firstRange) / idsPerSandbox
		f, err := os.OpenFile(filepath.Join(y.Dir, "ids", strconv.Itoa(n)), os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()
		return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB) == nil
	}
	if free() {
		t.Error("before it is adopted")
	}
	in, err := y.driver().Adopt(context.Background(), y.spec(), m.record, k)
	if err != nil {
		t.Fatal(err)
	}
	if free() {
		t.Error("while it lives")
	}
	in.Destroy(context.Background())
	if !free() {
		t.Error("it has gone and they are taken")
	}
}

func idsOf(t *testing.T, r driver.Record) int {
	t.Helper()
	var rec record
	if err := json.Unmarshal(r.Data, &rec); err != nil {
		t.Fatal(err)
	}
	return rec.IDs
}

// Who lets go ends nothing: the same process, or another, takes it up again and
// learns its status.
func TestRelease(t *testing.T) {
	// What the process keeps for all sandboxes, such as programs that are copied
	// once, is open after the first.
	released(t)
	before := openFiles(t)
	released(t)
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open, and %d are", before, after)
	}
}

// released makes a sandbox, lets go of it, adopts it and ends it.
func released(t *testing.T) {
	t.Helper()
	y := newYard(t, bailey.IsolationContainer)
	y.Outlet = true
	in, err := y.driver().Create(context.Background(), y.spec())
	if err != nil {
		t.Fatal(err)
	}
	files := duplicates(t, in.(driver.Staying).Held())
	r := in.(driver.Staying).Record()
	for range 2 {
		in.(driver.Staying).Release()
	}
	in.Kill(bailey.EndUser)
	if err := in.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	if list := in.(driver.Staying).Held(); len(list) != 0 {
		t.Errorf("%v are held", list)
	}
	in, err = y.driver().Adopt(context.Background(), y.spec(), r, driver.Kept{Files: files})
	if err != nil {
		t.Fatal(err)
	}
	c := speak(t, in)
	if out, _ := sh(t, c, "echo here"); out != "here\n" {
		t.Errorf("%q", out)
	}
	if err := c.Shutdown(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if e := await(t, in); e.Reason != bailey.EndExit {
		t.Errorf("%+v", e)
	}
	if err := in.Destroy(context.Background()); err != nil {
		t.Error(err)
	}
	c.Close()
	nothingLeft(t, r)
}

// The memory limit holds, and is judged, as before.
func TestAdoptLimits(t *testing.T) {
	y := newYard(t, bailey.IsolationContainer)
	y.Memory = 64 << 20
	if err := y.driver().cgroupHost().Can(bailey.Limits{Memory: y.Memory}); err != nil {
		t.Skip(testneeds.Cgroups.Reason(err.Error()))
	}
	m := y.make(t)
	m.kill()
	in, err := y.driver().Adopt(context.Background(), y.spec(), m.record, m.kept())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	if _, status := sh(t, speak(t, in), "x=$(head -c 200000000 /dev/zero | tr '\\0' x); test ${#x} = 200000000"); status == 0 {
		t.Error("there is no limit")
	}
	if st, err := in.Stats(context.Background()); err != nil || st.OOMKills < 1 || st.MemoryLimit != y.Memory {
		t.Errorf("%v %+v", err, st)
	}
	in.Kill(bailey.EndUser)
	if e := await(t, in); !slices.Contains(e.LimitHits, "memory") || e.Limit != y.Memory {
		t.Errorf("%+v", e)
	}
}

// What makes no sense is refused, and its descriptors are closed.
func TestAdoptRefuses(t *testing.T) {
	y := newYard(t, bailey.IsolationContainer)
	m := y.make(t)
	for name, change := range map[string]func(r *driver.Record){
		"another id":       func(r *driver.Record) { r.ID = "other" },
		"another level":    func(r *driver.Record) { r.Level = bailey.IsolationProcess },
		"no process":       func(r *driver.Record) { r.Pid = 1 },
		"no record":        func(r *driver.Record) { r.Data = nil },
		"a newer record":   func(r *driver.Record) { r.Data = json.RawMessage(`{"new": true}`) },
		"a foreign folder": func(r *driver.Record) { r.Data = json.RawMessage(`{"groups": {"v2": "/etc"}}`) },
		"ids of the host":  func(r *driver.Record) { r.Data = json.RawMessage(`{"ids": 65536, "groups": {}}`) },
	} {
		r := m.record
		change(&r)
		files := duplicates(t, m.files)
		if in, err := y.driver().Adopt(context.Background(), y.spec(), r, driver.Kept{Files: files}); err == nil {
			t.Errorf("%s: adopted", name)
			in.Destroy(context.Background())
		}
		for held, f := range files {
			if f.Close() == nil {
				t.Errorf("%s: %s is open", name, held)
			}
		}
	}
}

// A sandbox that is given up before anybody watches it leaves no zombie.
func TestReleaseUnwatched(t *testing.T) {
	y := newYard(t, bailey.IsolationContainer)
	d := y.driver()
	spec := y.spec()
	id, err := d.newIdentity(spec.User, spec.Level)
	if err != nil {
		t.Fatal(err)
	}
	group, err := d.newGroup(spec, id)
	if err != nil {
		t.Fatal(err)
	}
	in := d.newInstance(spec, id, group)
	if err := d.start(in); err != nil {
		t.Fatal(err)
	}
	pid := in.first.pid
	if err := in.release(); err != nil {
		t.Error(err)
	}
	if err := syscall.Kill(pid, 0); err != syscall.ESRCH {
		t.Errorf("process %d: %v", pid, err)
	}
}
