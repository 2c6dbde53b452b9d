package linux

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

func init() {
	insides["serve"] = func(args []string) error {
		l, err := net.Listen("tcp", args[0])
		if err != nil {
			return err
		}
		fmt.Println(l.Addr().(*net.TCPAddr).Port)
		for {
			c, err := l.Accept()
			if err != nil {
				return err
			}
			go func() {
				defer c.Close()
				io.WriteString(c, "hello from inside\n")
				io.Copy(c, c)
			}()
		}
	}
}

// serves has a server run inside and gives its port.
func serves(t testing.TB, c *guest.Client, address string) int {
	t.Helper()
	execs++
	p, err := c.Exec(context.Background(), guest.ExecSpec{ID: fmt.Sprint("serve-", execs), Argv: []string{"/probe", address}, Env: []string{insideVariable + "=serve"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	line, err := bufio.NewReader(p.Stdout()).ReadString('\n')
	if err != nil {
		t.Fatal(err)
	}
	port, err := strconv.Atoi(line[:len(line)-1])
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func TestDial(t *testing.T) {
	levels(t, func(t *testing.T, level bailey.Isolation) {
		for _, outlet := range []bool{false, true} {
			y := newYard(t, level)
			y.Outlet = outlet
			in, c := stays(t, y)
			addresses := []string{"127.0.0.1:0", ":0"}
			if hostIPv6() {
				addresses = append(addresses, "[::1]:0")
			}
			for _, address := range addresses {
				port := serves(t, c, address)
				conn, err := in.Dial(context.Background(), port)
				if err != nil {
					t.Fatal(err)
				}
				conn.SetDeadline(time.Now().Add(10 * time.Second))
				io.WriteString(conn, "and back\n")
				conn.(*net.TCPConn).CloseWrite()
				text, err := io.ReadAll(conn)
				if err != nil || string(text) != "hello from inside\nand back\n" {
					t.Errorf("%v %q", err, text)
				}
				conn.Close()
			}
			if _, err := in.Dial(context.Background(), 1); !errors.Is(err, syscall.ECONNREFUSED) || bailey.CodeOf(err) != bailey.CodeNotAvailable {
				t.Errorf("nobody listens: %v", err)
			}
		}
	})
}

// A port of the host that has the same number is not what is reached.
func TestDialIsNotTheHost(t *testing.T) {
	in, _ := stays(t, newYard(t, bailey.IsolationProcess))
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if c, err := in.Dial(context.Background(), l.Addr().(*net.TCPAddr).Port); err == nil {
		c.Close()
		t.Error("it leads to the host")
	}
}

func TestDialRefuses(t *testing.T) {
	in, c := stays(t, newYard(t, bailey.IsolationProcess))
	for _, port := range []int{-1, 0, 65536} {
		if _, err := in.Dial(context.Background(), port); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%d: %v", port, err)
		}
	}
	port := serves(t, c, "127.0.0.1:0")
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := in.Dial(ctx, port); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	in.Kill(bailey.EndUser)
	await(t, in)
	if _, err := in.Dial(context.Background(), port); bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Error(err)
	}
}

// Of an adopted sandbox, by several at once, and nothing is left open.
func TestDialAdopted(t *testing.T) {
	y := newYard(t, bailey.IsolationContainer)
	m := y.make(t)
	m.kill()
	in, err := y.driver().Adopt(context.Background(), y.spec(), m.record, m.kept())
	if err != nil {
		t.Fatal(err)
	}
	defer in.Destroy(context.Background())
	port := serves(t, speak(t, in), "127.0.0.1:0")
	before := openFiles(t)
	errs := make(chan error)
	for range 8 {
		go func() {
			var err error
			for range 16 {
				c, e := in.(driver.Staying).Dial(context.Background(), port)
				if e != nil {
					err = e
					break
				}
				c.Close()
			}
			errs <- err
		}()
	}
	for range 8 {
		if err := <-errs; err != nil {
			t.Error(err)
		}
	}
	if after := openFiles(t); after > before {
		t.Errorf("%d files were open, and %d are", before, after)
	}
}

func openFiles(t testing.TB) int {
	list, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(list)
}

func BenchmarkDial(b *testing.B) {
	in, c := stays(b, newYard(b, bailey.IsolationContainer))
	port := serves(b, c, "127.0.0.1:0")
	for b.Loop() {
		conn, err := in.Dial(context.Background(), port)
		if err != nil {
			b.Fatal(err)
		}
		conn.Close()
	}
}
