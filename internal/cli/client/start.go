package client

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/client"
)

// startWithin is how long a daemon may take to answer that was just started.
const startWithin = 20 * time.Second

// connect gives a client of the daemon, starting one when there is none.
func (inv *invocation) connect() (*client.Client, error) {
	c, err := client.New(client.Options{})
	if err != nil {
		return nil, err
	}
	if os.Getenv(client.EnvURL) != "" {
		return c, nil
	}
	home, err := dataFolder()
	if err != nil {
		return nil, err
	}
	socket := filepath.Join(home, client.SocketName)
	if answers(socket) {
		return c, nil
	}
	return c, inv.start(home, socket)
}

// dataFolder is where the daemon's socket is; the client's own default.
func dataFolder() (string, error) {
	home := os.Getenv(client.EnvHome)
	if home == "" && os.Geteuid() == 0 {
		home = "/var/lib/bailey"
	}
	if home == "" {
		base := os.Getenv("XDG_DATA_HOME")
		if !filepath.IsAbs(base) {
			user, err := os.UserHomeDir()
			if err != nil {
				return "", bailey.Errorf(bailey.CodeUsage, "find the data folder", "set BAILEY_HOME", "%w", err)
			}
			base = filepath.Join(user, ".local", "share")
		}
		home = filepath.Join(base, "bailey")
	}
	abs, err := filepath.Abs(home)
	if err != nil {
		return "", bailey.Errorf(bailey.CodeUsage, "find the data folder", "set BAILEY_HOME", "%w", err)
	}
	return abs, nil
}

// start starts the keeper, which starts the daemon and holds what must survive it,
// and waits until the daemon answers. Both leave when the last sandbox has gone.
func (inv *invocation) start(home, socket string) error {
	const what = "start the daemon"
	keeper, err := program("bailey-keeper")
	if err != nil {
		return err
	}
	daemon, err := program("baileyd")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(home, 0o700); err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "set BAILEY_HOME to a folder of yours", "%w", err)
	}
	log, err := os.OpenFile(filepath.Join(home, logName), os.O_CREATE|os.O_WRONLY|os.O_APPEND, 0o600)
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "set BAILEY_HOME to a folder of yours", "%w", err)
	}
	defer log.Close() // the keeper has its own
	from, err := log.Seek(0, 2)
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	cmd := exec.Command(keeper, "--home", home, "--", daemon, "serve", "--home", home, "--auto")
	cmd.Dir = "/"
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} // a person's interrupt is not for it
	if err := cmd.Start(); err != nil {
		return bailey.Errorf(bailey.CodeNotAvailable, what, "build all of Bailey with ./scripts/build", "%w", err)
	}
	ended := make(chan error, 1)
	go func() { ended <- cmd.Wait() }()
	ctx, cancel := context.WithTimeoutCause(inv.ctx, startWithin, errSilent)
	defer cancel()
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if answers(socket) {
			tick.Stop()
			return nil
		}
		select {
		case <-tick.C:
		case err := <-ended:
			if err != nil && !answers(socket) && !inv.other(ctx, socket, hasKeeper(err)) {
				return bailey.Errorf(bailey.CodeDaemonUnavailable, what, "read "+log.Name(), "it ended at once%s", lastWords(log.Name(), from))
			}
			return nil
		case <-ctx.Done():
			return bailey.Errorf(bailey.CodeDaemonUnavailable, what, "read "+log.Name(), "%w%s", context.Cause(ctx), lastWords(log.Name(), from))
		}
	}
}

var errSilent = fmt.Errorf("it does not answer within %s", startWithin)

// hasKeeper says that a keeper ended because the data folder has one, by its status.
func hasKeeper(err error) bool {
	const exitBusy = 75 // of cmd/bailey-keeper
	var ee *exec.ExitError
	return errors.As(err, &ee) && ee.ExitCode() == exitBusy
}

// other waits for the daemon of somebody else: of two keepers that were started at the
// same time one finds the data folder taken, as it does while a keeper starts a daemon
// again that has died. That one may take as long as any start.
func (inv *invocation) other(ctx context.Context, socket string, kept bool) bool {
	if !kept {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, 3*time.Second)
		defer cancel()
	}
	for tick := time.NewTicker(5 * time.Millisecond); ; {
		if answers(socket) {
			tick.Stop()
			return true
		}
		select {
		case <-ctx.Done():
			return false
		case <-tick.C:
		}
	}
}

// answers says that somebody listens at the socket.
func answers(socket string) bool {
	c, err := net.Dial("unix", socket)
	if err != nil {
		return false
	}
	c.Close()
	return true
}

// logName is the file of the data folder with what a daemon says that was started
// by a command.
const logName = "daemon.log"

// lastWords gives the end of what was written to the log since from.
func lastWords(name string, from int64) string {
	b, err := os.ReadFile(name)
	if err != nil || int64(len(b)) <= from {
		return ""
	}
	b = b[from:]
	const most = 2000
	if len(b) > most {
		b = b[len(b)-most:]
	}
	return ": " + strings.TrimSpace(string(b))
}

// program finds another program of Bailey: beside this one.
func program(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		p := filepath.Join(filepath.Dir(self), name)
		fi, serr := os.Stat(p)
		if serr == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0 {
			return p, nil
		}
	}
	return "", bailey.Errorf(bailey.CodeNotAvailable, "start "+name, "build all of Bailey with ./scripts/build", "it is not beside %s", self)
}
