package driver

import (
	"context"
	"encoding/json"
	"net"
	"os"
	"syscall"

	"github.com/bailey-sandbox/bailey"
)

// Record is what a driver needs beside descriptors to find a sandbox again that
// an earlier process of its made.
type Record struct {
	ID    string           `json:"id"`
	Level bailey.Isolation `json:"level"`
	Pid   int              `json:"pid"` // of its first process, on the host
	Data  json.RawMessage  `json:"data"`
}

// Kept is what lived on while nobody held the sandbox.
type Kept struct {
	// Files are those that Instance.Held gave, by name. Adopt takes them over,
	// also when it fails; names that it does not know stay the caller's.
	Files map[string]*os.File
	// Wait gives the status of the first process once it has ended, from whoever
	// reaps it now: it is no child of this process. It is called once, when the
	// process has ended, with a ctx of a few seconds; nil or an error is a status
	// that nobody knows.
	Wait func(ctx context.Context) (syscall.WaitStatus, error)
}

// The names of what Staying.Held gives.
const (
	HeldAgent     = "agent"      // the stream to bailey-init, which is the lease
	HeldPidfd     = "pidfd"      // the first process
	HeldIDs       = "ids"        // the lock of the range of ids; as root only
	HeldOutletTCP = "outlet-tcp" // the listeners of the way out
	HeldOutletUDP = "outlet-udp"
)

// Adopter is a Driver whose sandboxes outlive the process that made them.
type Adopter interface {
	Driver
	// Adopt gives the same sandbox with the same processes, frozen or not. If it
	// has ended meanwhile it gives an Instance that is Done, whose Destroy releases
	// all. Of spec it uses ID, Level, User, and of Root the kinds and targets of the
	// Places, which must be as they were at Create.
	//
	// An Instance whose lease was not among k.Files is sandbox_lost: bailey-init
	// has ended, or ends as soon as it runs.
	Adopt(ctx context.Context, spec Spec, r Record, k Kept) (Instance, error)
}

// Staying is an Instance that can be handed on, and to which something can be
// added while it lives. Every Instance with an Entry.Agent is one.
type Staying interface {
	Instance
	Record() Record
	// Held are the descriptors that keep the sandbox alive and that Adopt needs.
	// They stay the Instance's; whoever keeps them makes duplicates. It is to be
	// called before Agent is given to a guest client and before Outlet, which give
	// their descriptors away: those are then no longer among them.
	Held() map[string]*os.File
	// Release lets go of the sandbox without ending it: this process's descriptors
	// and goroutines are gone, and it lives on by what others keep. Done is not
	// closed, and no other method does anything any more.
	Release()
	// Attach shows one more folder or file of the host in the sandbox that runs: a
	// Place of kind Bind, CoW or Scratch. Its target may not be reached through a
	// link; it is made where the sandbox owns the ground. All processes that share
	// the sandbox's first view of its files see it at once.
	//
	// A folder of the host's ids can be shown writable only where Spec.LateMounts
	// or a place of the Root said that such folders may come: not_available.
	Attach(ctx context.Context, p Place) error
	// Dial connects to a TCP port of the sandbox's own loopback, 127.0.0.1 and
	// then ::1. Nobody listening is ECONNREFUSED in the error's chain.
	Dial(ctx context.Context, port int) (net.Conn, error)
}
