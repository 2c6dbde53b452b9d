package rest

import (
	"context"
	"io"
	"net"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// Engine is the engine as the server sees it; engine.Engine has its methods'
// words. It is a seam, so that tests can put package standin in its place, which
// starts no sandbox, gives every error there is, and cuts streams where it is told to.
type Engine interface {
	Create(ctx context.Context, who engine.Caller, spec api.SandboxSpec) (api.Sandbox, error)
	Sandbox(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error)
	Sandboxes(ctx context.Context, who engine.Caller, q api.SandboxQuery) (list []api.Sandbox, next string, err error)
	Delete(ctx context.Context, who engine.Caller, ref string) error
	Pause(ctx context.Context, who engine.Caller, ref string, req api.PauseRequest) (api.Receipt, error)
	Resume(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error)
	Extend(ctx context.Context, who engine.Caller, ref string, req api.ExtendRequest) (api.Sandbox, error)
	Renew(ctx context.Context, who engine.Caller, ref string) (api.Sandbox, error)
	Hold(ctx context.Context, who engine.Caller, ref string, req api.HoldRequest) (api.Hold, error)
	Release(ctx context.Context, who engine.Caller, ref, id string) error
	Stats(ctx context.Context, who engine.Caller, ref string) (api.Stats, error)
	StartExec(ctx context.Context, who engine.Caller, ref string, spec api.ExecSpec) (api.Exec, error)
	Exec(ctx context.Context, who engine.Caller, ref, id string) (api.Exec, error)
	Execs(ctx context.Context, who engine.Caller, ref string) ([]api.Exec, error)
	WaitExec(ctx context.Context, who engine.Caller, ref, id string) (api.Exec, error)
	Output(ctx context.Context, who engine.Caller, ref, id string, from map[api.Stream]int64, follow bool, each func(api.OutputEvent) error) error
	WriteStdin(ctx context.Context, who engine.Caller, ref, id string, p []byte, eof bool) error
	SignalExec(ctx context.Context, who engine.Caller, ref, id, signal string) error
	ResizeExec(ctx context.Context, who engine.Caller, ref, id string, w api.Window) error
	ReadFile(ctx context.Context, who engine.Caller, ref, path string, offset, length int64) (io.ReadCloser, api.FileInfo, error)
	WriteFile(ctx context.Context, who engine.Caller, ref, path string, mode uint32, r io.Reader) (api.Written, error)
	StatFile(ctx context.Context, who engine.Caller, ref, path string) (api.FileInfo, error)
	ListFiles(ctx context.Context, who engine.Caller, ref, path string, depth int, each func(api.FileInfo) error) error
	Mkdir(ctx context.Context, who engine.Caller, ref, path string, mode uint32) error
	RemoveFile(ctx context.Context, who engine.Caller, ref, path string, recursive bool) error
	MoveFile(ctx context.Context, who engine.Caller, ref, from, to string) error
	TarOut(ctx context.Context, who engine.Caller, ref, path string, w io.Writer) error
	TarIn(ctx context.Context, who engine.Caller, ref, path string, r io.Reader) (api.TarResult, error)
	WatchFiles(ctx context.Context, who engine.Caller, ref, path string, ready func(), each func(api.WatchEvent) error) error
	SearchFiles(ctx context.Context, who engine.Caller, ref string, q api.SearchQuery) (api.SearchResult, error)
	Snapshot(ctx context.Context, who engine.Caller, ref string, spec api.SnapshotSpec) (api.Snapshot, error)
	SnapshotOf(ctx context.Context, who engine.Caller, ref string) (api.Snapshot, error)
	Snapshots(ctx context.Context, who engine.Caller, sandbox string, checkpoints bool) ([]api.Snapshot, error)
	DeleteSnapshot(ctx context.Context, who engine.Caller, ref string) error
	Fork(ctx context.Context, who engine.Caller, ref string, req api.ForkRequest) ([]api.Sandbox, error)
	Checkpoint(ctx context.Context, who engine.Caller, ref, name string) (api.Snapshot, error)
	Diff(ctx context.Context, who engine.Caller, ref, from, to string, each func(api.Change) error) error
	Undo(ctx context.Context, who engine.Caller, ref string, req api.UndoRequest) (api.Receipt, error)
	Promote(ctx context.Context, who engine.Caller, ref string, req api.PromoteRequest) (api.Sandbox, error)
	Bisect(ctx context.Context, who engine.Caller, ref string, req api.BisectRequest) (api.BisectResult, error)
	ExportSnapshot(ctx context.Context, who engine.Caller, ref string, w io.Writer) error
	ImportSnapshot(ctx context.Context, who engine.Caller, name string, r io.Reader) (api.Snapshot, error)
	UpdatePolicy(ctx context.Context, who engine.Caller, ref string, spec api.SandboxSpec) (api.Sandbox, error)
	AddMount(ctx context.Context, who engine.Caller, ref, mount string, v *api.VolumeMount) (api.Sandbox, error)
	Expose(ctx context.Context, who engine.Caller, ref string, req api.PortRequest) (api.Port, error)
	Unexpose(ctx context.Context, who engine.Caller, ref string, port int) error
	PortLink(ctx context.Context, who engine.Caller, ref string, port int, d time.Duration) (api.PortLink, error)
	DialPort(ctx context.Context, ref string, port int) (net.Conn, error)
	NewSession(ctx context.Context, who engine.Caller, spec api.SessionSpec) (api.Session, error)
	SessionOf(ctx context.Context, who engine.Caller, ref string) (api.Session, error)
	Sessions(ctx context.Context, who engine.Caller, labels map[string]string) ([]api.Session, error)
	SessionEvents(ctx context.Context, who engine.Caller, ref string, seq int64, follow bool, each func(api.SessionEvent) error) error
	Execute(ctx context.Context, who engine.Caller, ref string, req api.ExecuteRequest) (api.ExecResult, error)
	AppendSession(ctx context.Context, who engine.Caller, ref string, ev api.SessionEvent) (api.SessionEvent, error)
	CloseSession(ctx context.Context, who engine.Caller, ref string) error
	Events(ctx context.Context, who engine.Caller, seq int64, each func(api.Event) error) error
	GC(ctx context.Context, who engine.Caller, dry bool) ([]api.Orphan, error)
	Info(ctx context.Context) (api.Info, error)
	CreateVolume(ctx context.Context, who engine.Caller, name string, limit int64) (api.Volume, error)
	Volumes(ctx context.Context, who engine.Caller) ([]api.Volume, error)
	DeleteVolume(ctx context.Context, who engine.Caller, name string) error
	Templates(ctx context.Context, who engine.Caller) ([]api.Template, error)
	BuildTemplate(ctx context.Context, who engine.Caller, spec api.BuildSpec, context io.Reader, each func(api.Progress)) (api.Template, error)
	DeleteTemplate(ctx context.Context, who engine.Caller, name string) error
	ExportTemplate(ctx context.Context, who engine.Caller, name string, w io.Writer) error
	PullImage(ctx context.Context, who engine.Caller, ref string, each func(api.Progress)) (api.Image, error)
	Images(ctx context.Context, who engine.Caller) ([]api.Image, error)
	DeleteImage(ctx context.Context, who engine.Caller, ref string) error
}

var _ Engine = (*engine.Engine)(nil)
