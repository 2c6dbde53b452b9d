package terminal

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/creack/pty"
)

// The test binary plays three more parts, so that the tests can put real
// processes into real sessions:
//
//	relay CMD…   what "bailey run" is: it joins the terminal it was started on
//	             with CMD's own, through a Relay.
//	leader CMD…  what the sandbox's pid 1 is: the leader of the inner session.
//	             It runs CMD as a foreground job and reports, on descriptor 3,
//	             when it stops and how it ends. A job whose parent is in
//	             another session could not be stopped by ^Z at all.
const roleVariable = "BAILEY_TERMINAL_TEST_ROLE"

func TestMain(m *testing.M) {
	switch os.Getenv(roleVariable) {
	case "relay":
		os.Exit(relayRole(os.Args[1:]))
	case "leader":
		os.Exit(leaderRole(os.Args[1:]))
	}
	adoptOrphans()
	// The first of these starts a goroutine for good; the tests count theirs.
	c := make(chan os.Signal, 1)
	signal.Notify(c, syscall.SIGUSR1)
	signal.Stop(c)
	os.Exit(m.Run())
}

func fatal(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		os.Exit(125)
	}
}

func relayRole(command []string) int {
	person := Std()
	layout := person.Layout()
	var inside Inside
	var theirs [3]*os.File // the command's side
	pipe := func() (*os.File, *os.File) {
		r, w, err := os.Pipe()
		fatal(err)
		return r, w
	}
	if layout.Pty {
		master, slave, err := pty.Open()
		fatal(err)
		fatal(SetSize(master, person.Size()))
		inside.Pty, theirs = master, [3]*os.File{slave, slave, slave}
	} else {
		theirs[0], inside.In = pipe()
		inside.Out, theirs[1] = pipe()
	}
	if layout.ErrPipe {
		inside.Err, theirs[2] = pipe()
	}
	reports, reporter := pipe()
	self, err := os.Executable()
	fatal(err)
	leader := exec.Command(self, command...)
	leader.Env = append(os.Environ(), roleVariable+"=leader", "RELAY="+strconv.Itoa(os.Getpid()))
	leader.Stdin, leader.Stdout, leader.Stderr = theirs[0], theirs[1], theirs[2]
	leader.ExtraFiles = []*os.File{reporter}
	leader.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Setctty: layout.Pty}

	main, known := 0, make(chan struct{})
	kill := func(sig syscall.Signal) {
		<-known
		_ = syscall.Kill(-main, sig)
	}
	opts := Options{
		OnSignal: func(s os.Signal) {
			if s == syscall.SIGQUIT && os.Getenv("BAILEY_TERMINAL_TEST_PANIC") != "" {
				panic("as asked")
			}
			kill(s.(syscall.Signal))
			kill(syscall.SIGCONT) // a stopped process would not see it
		},
		OnStop:     func() { kill(syscall.SIGSTOP) },
		OnContinue: func() { kill(syscall.SIGCONT) },
	}
	if n := os.Getenv("BAILEY_TERMINAL_TEST_LIMIT"); n != "" {
		opts.OutputLimit, _ = strconv.ParseInt(n, 10, 64)
		opts.OnLimit = func() { kill(syscall.SIGKILL) }
	}
	r, err := Start(person, inside, opts)
	fatal(err)
	defer r.Finish(0)
	questions := make(chan os.Signal, 4)
	signal.Notify(questions, syscall.SIGUSR1)
	var asked sync.WaitGroup
	asked.Go(func() {
		for n := 1; ; n++ {
			if _, ok := <-questions; !ok {
				return
			}
			asked.Go(func() { askRole(r, n) })
		}
	})
	fatal(leader.Start())
	for _, f := range theirs {
		f.Close()
	}
	reporter.Close()
	status := 125
	for lines := bufio.NewScanner(reports); lines.Scan(); {
		word, number, _ := strings.Cut(lines.Text(), " ")
		n, _ := strconv.Atoi(number)
		switch word {
		case "pid":
			main = n
			close(known)
		case "stopped":
			if n == int(syscall.SIGSTOP) {
				continue // by OnStop
			}
			if err := r.Suspend(); err != nil {
				fmt.Fprintln(os.Stderr, "suspend:", err)
			}
		case "exit":
			status = n
		}
	}
	_ = leader.Wait()
	if res := r.Finish(10 * time.Second); res.LimitReached {
		fmt.Fprintf(os.Stderr, "limit reached after %d bytes\n", res.Bytes)
	}
	signal.Stop(questions)
	close(questions)
	asked.Wait() // what came of a question is written by then
	return status
}

// askRole asks a question, as SIGUSR1 makes a relay do, and writes what came of it to
// a file.
func askRole(r *Relay, n int) {
	said := "nothing"
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	err := r.Ask(ctx, fmt.Sprintf("question %d\n", n), "yes or no? ", func(line string) (string, bool) {
		if said = line; line == "leave" {
			cancel()
			return "", false
		}
		return "heard <" + line + ">\n", line == "yes" || line == "no"
	})
	fatal(os.WriteFile(fmt.Sprintf("answer%d", n), fmt.Appendf(nil, "%s %v", said, err), 0o600))
}

func leaderRole(command []string) int {
	reports := os.NewFile(3, "reports")
	syscall.CloseOnExec(3)
	signal.Ignore(syscall.SIGTTOU)
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Env = append(os.Environ(), roleVariable+"=")
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if Is(os.Stdin) {
		cmd.SysProcAttr.Foreground = true
	}
	if err := cmd.Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		fmt.Fprintln(reports, "exit 127")
		return 0
	}
	pid := cmd.Process.Pid
	fmt.Fprintln(reports, "pid", pid)
	for {
		var ws syscall.WaitStatus
		if _, err := syscall.Wait4(pid, &ws, syscall.WUNTRACED, nil); err != nil {
			if err == syscall.EINTR {
				continue
			}
			return 1
		}
		switch {
		case ws.Stopped():
			fmt.Fprintln(reports, "stopped", int(ws.StopSignal()))
		case ws.Signaled():
			fmt.Fprintln(reports, "exit", 128+int(ws.Signal()))
			return 0
		case ws.Exited():
			fmt.Fprintln(reports, "exit", ws.ExitStatus())
			return 0
		}
	}
}
