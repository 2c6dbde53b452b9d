package starter

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"sync"
	"syscall"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

// Errand is what a vault is asked for, one JSON value after the other on its
// standard input. One of its fields is set.
type Errand struct {
	// Policy: tell the gate what its secrets are, and their changes.
	Policy *control.Policy `json:"policy,omitempty"`
	// Lineage: give the gate the lineage's certificate authority, made if there is
	// none, once.
	Lineage string `json:"lineage,omitempty"`
	// Forget: destroy the lineage's authority, and say so on descriptor 3.
	Forget string `json:"forget,omitempty"`
	ID     int64  `json:"id,omitempty"` // of Forget, for its answer
}

// Done is the answer to Errand.Forget.
type Done struct {
	ID    int64         `json:"id"`
	Error *bailey.Error `json:"error,omitempty"`
}

// vault is the process `baileyd vault`.
type vault struct {
	daemon, home string
	env          []string
	lost         func() // called when it ends before close

	mu      sync.Mutex
	feed    *os.File // the end of the pipe that the vault writes to, until it has it
	asks    *os.File // to the vault's standard input
	cmd     *exec.Cmd
	words   words
	ended   chan struct{} // it has been waited for
	over    bool          // close was called
	last    int64
	waiting map[int64]chan error // for a Done
}

// tellWithin bounds the wait for a vault that does not read.
const tellWithin = 10 * time.Second

// Secrets has the vault tell the gate what a policy's secrets are.
func (p *Process) Secrets(of control.Policy) error {
	if len(of.Secrets) == 0 && of.Document == nil {
		return nil // profiles bind no secret
	}
	return p.vault.ask(Errand{Policy: &of})
}

// Lineage has the vault give the gate the certificate authority of a lineage, for
// one Open.
func (p *Process) Lineage(name string) error { return p.vault.ask(Errand{Lineage: name}) }

// Forget destroys a lineage's certificate authority. One that is not there is fine.
func (p *Process) Forget(ctx context.Context, lineage string) error {
	v := &p.vault
	done := make(chan error, 1)
	v.mu.Lock()
	v.last++
	id := v.last
	if v.waiting == nil {
		v.waiting = map[int64]chan error{}
	}
	v.waiting[id] = done
	v.mu.Unlock()
	defer func() {
		v.mu.Lock()
		delete(v.waiting, id)
		v.mu.Unlock()
	}()
	if err := v.ask(Errand{Forget: lineage, ID: id}); err != nil {
		return err
	}
	select {
	case err := <-done:
		return err
	case <-v.ended:
		return v.gone()
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (v *vault) ask(e Errand) error {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.asks == nil {
		if err := v.start(); err != nil {
			return bailey.Errorf(bailey.CodeSetupFailed, "get the secrets", "", "%w", err)
		}
	}
	v.asks.SetWriteDeadline(time.Now().Add(tellWithin))
	if err := json.NewEncoder(v.asks).Encode(e); err != nil {
		if errors.Is(err, syscall.EPIPE) { // it is ending, and will soon have said why
			<-v.ended
		}
		return v.gone()
	}
	return nil
}

func (v *vault) gone() error {
	return bailey.Errorf(bailey.CodeSetupFailed, "get the secrets", "", "the process that holds them has ended: %s", v.words.String())
}

func (v *vault) start() error {
	if v.feed == nil {
		return os.ErrClosed
	}
	in, asks, err := os.Pipe()
	if err != nil {
		return err
	}
	defer in.Close()
	answers, out, err := os.Pipe()
	if err != nil {
		asks.Close()
		return err
	}
	defer out.Close()
	v.cmd = exec.Command(v.daemon, "vault", "--home", v.home)
	v.cmd.Env = v.env
	v.cmd.Dir = "/"
	v.cmd.Stdin, v.cmd.Stdout, v.cmd.Stderr = in, v.feed, &v.words
	v.cmd.ExtraFiles = []*os.File{out}
	v.cmd.WaitDelay = time.Second // its commands may have its standard error
	v.cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := v.cmd.Start(); err != nil {
		asks.Close()
		answers.Close()
		return err
	}
	v.asks = asks
	v.feed.Close() // from here on only the vault has it, so that its end is seen
	v.feed = nil
	go v.listen(answers)
	go func() {
		v.cmd.Wait() // the gate sees that it ended
		close(v.ended)
		v.mu.Lock()
		over := v.over
		v.mu.Unlock()
		if !over && v.lost != nil {
			v.lost()
		}
	}()
	return nil
}

// listen passes the vault's answers on.
func (v *vault) listen(answers *os.File) {
	defer answers.Close()
	for d := json.NewDecoder(answers); ; {
		var a Done
		if d.Decode(&a) != nil {
			return
		}
		v.mu.Lock()
		done := v.waiting[a.ID]
		delete(v.waiting, a.ID)
		v.mu.Unlock()
		switch {
		case done == nil:
		case a.Error != nil:
			done <- a.Error
		default:
			done <- nil
		}
	}
}

// close ends the vault and what it has started.
func (v *vault) close() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.over = true
	if v.feed != nil {
		v.feed.Close()
		v.feed = nil
	}
	if v.asks == nil {
		return
	}
	v.asks.Close()
	select {
	case <-v.ended:
	case <-time.After(3 * time.Second):
		v.cmd.Process.Kill()
		<-v.ended
	}
}

// VaultEnded says whether the vault was there and has ended. When something that
// needs it has failed because of that, it says so.
func (p *Process) VaultEnded() bool {
	select {
	case <-p.vault.ended:
		return true
	default:
		return false
	}
}

// VaultPid is the vault's process id, 0 while there is none.
func (p *Process) VaultPid() int {
	p.vault.mu.Lock()
	defer p.vault.mu.Unlock()
	if p.vault.cmd == nil || p.vault.cmd.Process == nil {
		return 0
	}
	return p.vault.cmd.Process.Pid
}
