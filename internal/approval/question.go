package approval

import (
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Question is an act that a rule wants a person to decide. All but ID, Sandbox,
// Rule, Description, Secrets and the times may be the sandbox's own words: show
// it as printable text only.
type Question struct {
	ID      string `json:"id"`
	Sandbox string `json:"sandbox"`
	What    string `json:"what"` // "GET https://example.com/x"
	Host    string `json:"host"`
	Port    int    `json:"port"`
	Method  string `json:"method,omitempty"`
	Path    string `json:"path,omitempty"`
	// Query has the names of the query's fields, Body the number of bytes of the
	// body, -1 where that is not known.
	Query       []string `json:"query,omitempty"`
	Body        int64    `json:"body,omitempty"`
	Program     string   `json:"program,omitempty"` // that asks, where it is known
	Rule        string   `json:"rule,omitempty"`
	Description string   `json:"description,omitempty"` // of the rule
	Reason      string   `json:"reason,omitempty"`      // why it is asked
	Secrets     []string `json:"secrets,omitempty"`     // names of those that would be used
	// Session says what a yes for the session allows, in words.
	Session string    `json:"session,omitempty"`
	Digest  string    `json:"digest"` // of the act that the answer is for
	Asked   time.Time `json:"asked"`
	Until   time.Time `json:"until"` // then the answer is no
	// Durable: whoever asks may come back, and takes the answer that was given
	// meanwhile; see Desk.Put.
	Durable bool `json:"durable,omitempty"`
}

// Verdict is an answer.
type Verdict string

// The verdicts. Expired and Withdrawn are the asking process's own: nobody has
// answered in time, or the act is gone.
const (
	Once      Verdict = "once"    // this act alone
	Session   Verdict = "session" // what Question.Session says
	No        Verdict = "no"
	Expired   Verdict = "expired"
	Withdrawn Verdict = "withdrawn"
)

// Answer answers a question.
type Answer struct {
	Verdict Verdict   `json:"verdict"`
	Digest  string    `json:"digest"`        // of the question that was read
	By      string    `json:"by,omitempty"`  // the user's name
	Via     string    `json:"via,omitempty"` // terminal or approvals
	At      time.Time `json:"at"`
}

// said puts an answer into words.
func (a Answer) said() string {
	who := a.By
	if who == "" {
		who = "somebody"
	}
	at := a.At.Local().Format(time.TimeOnly)
	switch a.Verdict {
	case Once:
		return fmt.Sprintf("%s has allowed it once, at %s", who, at)
	case Session:
		return fmt.Sprintf("%s has allowed it for the session, at %s", who, at)
	case No:
		return fmt.Sprintf("%s has said no, at %s", who, at)
	case Expired:
		return "nobody answered in time, and it was denied at " + at
	}
	return "it was withdrawn at " + at
}

const (
	idAlphabet     = "abcdefghijklmnopqrstuvwxyz234567" // base32 of RFC 4648, in lower case
	idLength       = 10
	questionSuffix = ".json"
	answerSuffix   = ".answer"
	newPrefix      = ".new-"
	maxFile        = 256 << 10 // bytes of a question
)

// NewID gives the id of a new question.
func NewID() string {
	var b [idLength]byte
	rand.Read(b[:]) // never fails; see crypto/rand
	for i := range b {
		b[i] = idAlphabet[b[i]&31]
	}
	return string(b[:])
}

func validID(s string) bool { return len(s) == idLength && strings.Trim(s, idAlphabet) == "" }

// readFile reads a file of the folder that this user has written.
func readFile(path string, into any) error {
	fd, err := unix.Open(path, unix.O_RDONLY|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return &os.PathError{Op: "open", Path: path, Err: err}
	}
	f := os.NewFile(uintptr(fd), path)
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxFile+1))
	if err != nil {
		return err
	}
	if len(text) > maxFile {
		return fmt.Errorf("%s is too long", path)
	}
	return json.Unmarshal(text, into)
}

// hold locks a file for as long as it is open: an open file description lock,
// which ends with the process, by whatever death.
func hold(f *os.File) error {
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK})
}

// held tells whether somebody holds a question's lock. It is true as well where
// that cannot be known.
func held(path string) bool {
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_NOFOLLOW|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return err != unix.ENOENT
	}
	defer unix.Close(fd)
	lk := unix.Flock_t{Type: unix.F_WRLCK}
	err = unix.FcntlFlock(uintptr(fd), unix.F_OFD_GETLK, &lk)
	return err != nil || lk.Type != unix.F_UNLCK
}
