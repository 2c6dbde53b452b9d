package guest

import (
	"context"
	"io"
	"os"
	"syscall"
	"time"
)

// PROVISIONAL: signatures only, replaced by the real files in the next commits.

type ClientOptions struct{}
type Client struct{}

// Socket is one end of a unix socket that passes descriptors.
type Socket struct{ f *os.File }

func (s *Socket) Read(p []byte) (int, error)  { return s.f.Read(p) }
func (s *Socket) Write(p []byte) (int, error) { return s.f.Write(p) }
func (s *Socket) Close() error                { return s.f.Close() }

// Pair makes a connected pair: the owner's Socket, and the file that bailey-init inherits as descriptor 3.
func Pair() (*Socket, *os.File, error) { return nil, nil, syscall.ENOSYS }

// NewSocket takes over f, a connected unix stream socket (e.g. handed back by the keeper).
func NewSocket(f *os.File) (*Socket, error) { return nil, syscall.ENOSYS }

// InitEnv is the environment to start bailey-init with (GOMAXPROCS, GOGC: small memory).
func InitEnv() []string { return nil }

// NewClient opens the conversation (RESET, HELLO). With a *Socket descriptors are passed.
func NewClient(ctx context.Context, rw io.ReadWriteCloser, opt ClientOptions) (*Client, error) {
	return nil, syscall.ENOSYS
}
func (c *Client) Close() error          { return nil }
func (c *Client) Done() <-chan struct{} { return nil }
func (c *Client) Err() error            { return nil }

func (c *Client) Exec(ctx context.Context, spec ExecSpec) (*Process, error) {
	return nil, syscall.ENOSYS
}
func (c *Client) Attach(ctx context.Context, id string, opt AttachOptions) (*Process, error) {
	return nil, syscall.ENOSYS
}
func (c *Client) Run(ctx context.Context, spec ExecSpec, stdin io.Reader, max int64) (RunResult, error) {
	return RunResult{}, syscall.ENOSYS
}
func (c *Client) Status(ctx context.Context, id string) (ExecStatus, error) {
	return ExecStatus{}, syscall.ENOSYS
}
func (c *Client) Execs(ctx context.Context) ([]ExecStatus, error)      { return nil, syscall.ENOSYS }
func (c *Client) Processes(ctx context.Context) ([]ProcessInfo, error) { return nil, syscall.ENOSYS }
func (c *Client) Signal(ctx context.Context, id string, sig syscall.Signal, scope Scope) error {
	return syscall.ENOSYS
}
func (c *Client) Forget(ctx context.Context, id string) error             { return syscall.ENOSYS }
func (c *Client) Shutdown(ctx context.Context, grace time.Duration) error { return syscall.ENOSYS }
func (c *Client) SetClock(ctx context.Context, t time.Time) error         { return syscall.ENOSYS }
func (c *Client) AddEntropy(ctx context.Context, b []byte) error          { return syscall.ENOSYS }
func (c *Client) Ping(ctx context.Context) error                          { return syscall.ENOSYS }
func (c *Client) ReadFile(ctx context.Context, path string, opt ReadOptions) (io.ReadCloser, FileInfo, error) {
	return nil, FileInfo{}, syscall.ENOSYS
}
func (c *Client) WriteFile(ctx context.Context, path string, r io.Reader, opt WriteOptions) (Written, error) {
	return Written{}, syscall.ENOSYS
}
func (c *Client) List(ctx context.Context, path string, opt ListOptions, each func(FileInfo) error) error {
	return syscall.ENOSYS
}
func (c *Client) Stat(ctx context.Context, path string, user *User) (FileInfo, error) {
	return FileInfo{}, syscall.ENOSYS
}
func (c *Client) Lstat(ctx context.Context, path string, user *User) (FileInfo, error) {
	return FileInfo{}, syscall.ENOSYS
}
func (c *Client) Mkdir(ctx context.Context, path string, mode uint32, parents bool, user *User) error {
	return syscall.ENOSYS
}
func (c *Client) Rename(ctx context.Context, from, to string, user *User) error {
	return syscall.ENOSYS
}
func (c *Client) Remove(ctx context.Context, path string, recursive bool, user *User) error {
	return syscall.ENOSYS
}
func (c *Client) Readlink(ctx context.Context, path string, user *User) (string, error) {
	return "", syscall.ENOSYS
}
func (c *Client) Watch(ctx context.Context, path string, opt WatchOptions, each func(WatchEvent) error) error {
	return syscall.ENOSYS
}
func (c *Client) TarOut(ctx context.Context, path string, w io.Writer, opt TarOptions) error {
	return syscall.ENOSYS
}
func (c *Client) TarIn(ctx context.Context, path string, r io.Reader, opt TarOptions) error {
	return syscall.ENOSYS
}

// AttachOptions say where to go on after a new connection.
type AttachOptions struct {
	Offsets   [2]int64    // without descriptors: the next bytes of stdout and stderr wanted
	Files     [3]*os.File // with descriptors: the ends kept from the first time (stdin write, stdout read, stderr read; or the terminal's master as [1])
	ManualAck bool
}

// RunResult is what Run collected.
type RunResult struct {
	End            ExecEnd
	Stdout, Stderr []byte
	Truncated      bool // output went beyond max
}

// Process is one execution.
type Process struct{}

func (p *Process) ID() string                                { return "" }
func (p *Process) Pid() int                                  { return 0 }
func (p *Process) Existing() bool                            { return false } // attached to one that ran before
func (p *Process) Stdin() io.WriteCloser                     { return nil }   // nil unless asked; Close is EOF
func (p *Process) Stdout() *Output                           { return nil }
func (p *Process) Stderr() *Output                           { return nil } // nil with a terminal
func (p *Process) Wait(ctx context.Context) (ExecEnd, error) { return ExecEnd{}, syscall.ENOSYS }
func (p *Process) Events() <-chan Event                      { return nil }
func (p *Process) Signal(ctx context.Context, sig syscall.Signal, scope Scope) error {
	return syscall.ENOSYS
}
func (p *Process) Resize(ctx context.Context, w Window) error { return syscall.ENOSYS }
func (p *Process) Close() error                               { return nil } // detach; the command goes on

// Output is one output stream with byte offsets.
type Output struct{}

func (o *Output) Read(p []byte) (int, error) { return 0, syscall.ENOSYS }
func (o *Output) Offset() int64              { return 0 }   // of the next byte Read gives
func (o *Output) Ack(offset int64)           {}             // bytes below are safe; bailey-init may drop them
func (o *Output) File() *os.File             { return nil } // with descriptors: the pipe or terminal itself
