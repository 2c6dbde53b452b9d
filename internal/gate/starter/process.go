package starter

import (
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// Options say what to start. Daemon and Home are required.
type Options struct {
	Daemon string   // path of baileyd
	Home   string   // the data folder, absolute
	Env    []string // SSL_CERT_FILE and the like, and for the commands that some secrets come from
	Events control.Events
	// VaultLost is called when the vault has ended before Close: no secret is put in
	// any more, by this gate.
	VaultLost func()
}

// Process is a gate's process, which serves any number of sandboxes, with its
// vault. Client speaks with it.
type Process struct {
	Client *control.Client

	cmd   *exec.Cmd
	words words
	ended chan struct{} // its process has been waited for
	vault vault
	once  sync.Once
}

// Start returns at once, and whoever asks something of the gate waits. The gate
// ends with Close, and when this process ends, however it does. The vault is
// started when the first comes that needs it.
func Start(o Options) (*Process, error) {
	const what = "start the gate"
	ours, theirs, err := control.Pair()
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	defer theirs.Close()
	values, feed, err := os.Pipe()
	if err != nil {
		ours.Close()
		return nil, bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	defer values.Close()
	p := &Process{ended: make(chan struct{}), vault: vault{daemon: o.Daemon, home: o.Home, env: o.Env, feed: feed, ended: make(chan struct{}), lost: o.VaultLost}}
	p.cmd = exec.Command(o.Daemon, "gate", "--home", o.Home)
	p.cmd.Env = o.Env
	p.cmd.Dir = "/"
	p.cmd.Stderr = &p.words
	p.cmd.ExtraFiles = []*os.File{theirs, values}
	// A person's interrupt is for the sandbox.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := startBounded(p.cmd); err != nil {
		ours.Close()
		feed.Close()
		return nil, bailey.Errorf(bailey.CodeNotAvailable, what, "build all of Bailey with ./scripts/build", "%w", err)
	}
	go func() {
		p.cmd.Wait() // how it ended is of no interest: it is gone
		close(p.ended)
	}()
	if p.Client, err = control.NewClient(ours, o.Events); err != nil {
		p.Kill()
		feed.Close()
		return nil, bailey.Errorf(bailey.CodeSetupFailed, what, "", "%w", err)
	}
	return p, nil
}

// Alive says whether the gate's process is there.
func (p *Process) Alive() bool {
	select {
	case <-p.ended:
		return false
	case <-p.Client.Done():
		return false
	default:
		return true
	}
}

// Kill ends the gate's process, which is gone when it returns.
func (p *Process) Kill() {
	p.cmd.Process.Kill()
	<-p.ended
}

// Pid is the gate's process id.
func (p *Process) Pid() int { return p.cmd.Process.Pid }

// Words gives the last of what the gate has printed, which is nothing but why it
// fell. They are all there once it has ended, for which a second is waited.
func (p *Process) Words() string {
	select {
	case <-p.ended:
	case <-time.After(time.Second):
	}
	return p.words.String()
}

// Why makes a lost gate's last words part of an error.
func (p *Process) Why(err error) error {
	select {
	case <-p.Client.Done():
	default:
		return err // it lives, and has said what is wrong
	}
	said := p.Words()
	if said == "" {
		return err
	}
	return bailey.Errorf(bailey.CodeSetupFailed, "use the gate", "", "its process ended: %s", said)
}

// Close ends the gate's process and its vault, if they live.
func (p *Process) Close() {
	if p == nil {
		return
	}
	p.once.Do(func() {
		p.Client.Hangup()
		select {
		case <-p.ended:
		case <-time.After(3 * time.Second): // it has a second of its own to end in
			p.Kill()
		}
		p.vault.close()
	})
}

// words keeps the last of what a process prints.
type words struct {
	mu   sync.Mutex
	text []byte
}

const maxWords = 4 << 10

func (w *words) Write(p []byte) (int, error) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.text = append(w.text, p...)
	if n := len(w.text); n > maxWords {
		w.text = slices.Clone(w.text[n-maxWords:])
	}
	return len(p), nil
}

func (w *words) String() string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return strings.TrimSpace(string(w.text))
}
