package control

import (
	"encoding/json"
	"os"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Version of the wire. Both ends are of one release; another version is an error.
const Version = 1

// Open asks for a way out for one sandbox.
type Open struct {
	// Sandbox is the id that records, denials and later messages name. Lineage
	// is what shares a certificate authority with it; "" is the sandbox alone.
	Sandbox string `json:"sandbox"`
	Lineage string `json:"lineage,omitempty"`
	Session string `json:"session,omitempty"`
	Level   string `json:"level,omitempty"` // for the record
	Policy  Policy `json:"policy"`
	Ask     Ask    `json:"ask,omitzero"`
	// Root is what the certificate authority is installed into.
	Root Root `json:"root,omitzero"`
	// Saved is what Opened.Saved or an event said last of the same sandbox, in an
	// earlier gate too: its placeholders and what a person has granted come back.
	Saved json.RawMessage `json:"saved,omitempty"`
	// Names: the table of names is kept in a file, whose descriptor comes with it.
	Names bool `json:"names,omitempty"`
}

// Root is what a sandbox's root file system has of authorities. The starter looks
// for them (package rootfiles), since the gate has given up its right to.
type Root struct {
	Bundles []File   `json:"bundles,omitempty"` // with their content; Mode counts for nothing
	Stores  []string `json:"stores,omitempty"`  // Java's trust stores that are there
}

// Policy is what the sandbox may reach, as its owner said it: what all of it
// allows together.
type Policy struct {
	// Document is a policy document, whole; the others add to it.
	Document *Document `json:"document,omitempty"`
	Allow    []string  `json:"allow,omitempty"`    // HOST[:PORT]
	Profiles []string  `json:"profiles,omitempty"` // names
	Secrets  []string  `json:"secrets,omitempty"`  // NAME@HOST
}

// Empty tells that nothing was said, so that there is nothing to reach.
func (p Policy) Empty() bool {
	return p.Document == nil && len(p.Allow) == 0 && len(p.Profiles) == 0 && len(p.Secrets) == 0
}

// Document is the text of a policy document.
type Document struct {
	Name string `json:"name"` // for messages: its path
	Text []byte `json:"text"`
}

// Ask says what becomes of rules that ask a person.
type Ask struct {
	// Possible: the starter can put questions to a person. Without it a question
	// is a denial.
	Possible bool `json:"possible,omitempty"`
	// Attended: there is a person in front of it. Otherwise a question is a
	// denial too unless it was said how long an answer is waited for, by Timeout or
	// the policy.
	Attended bool          `json:"attended,omitempty"`
	Timeout  time.Duration `json:"timeout,omitempty"`
}

// Opened is the answer to Open: what the sandbox has to be given.
type Opened struct {
	Policy       string   `json:"policy"` // digest of the version in force
	Certificate  []byte   `json:"certificate,omitempty"`
	Env          []string `json:"env,omitempty"` // NAME=VALUE, placeholders included
	Files        []File   `json:"files,omitempty"`
	Descriptions []string `json:"descriptions,omitempty"` // for the model: what may be reached
	Notes        []string `json:"notes,omitempty"`        // for the person
	Confinement  []string `json:"confinement,omitempty"`  // what the gate's process gave up
	Placeholders []string `json:"placeholders,omitempty"` // names in Env that stand for secrets
	// Saved is for Open.Saved. No secret is in it.
	Saved json.RawMessage `json:"saved,omitempty"`
}

// File is a file that belongs into the sandbox.
type File struct {
	Path string      `json:"path"` // inside, absolute
	Mode os.FileMode `json:"mode"` // permissions
	// Content is the whole file. It may be large, so it travels as a sealed
	// descriptor and not in the message.
	Content []byte `json:"-"`
	Size    int64  `json:"size"`
	// Same: it travels with an earlier file, whose place in the list, from 1, this
	// is. A bundle has several names.
	Same int `json:"same,omitempty"`
}

// Checked is the answer to Check: what a policy says, without anything being
// opened.
type Checked struct {
	Policy  string  `json:"policy"` // digest
	Session Session `json:"session,omitzero"`
}

// Session is what a document says beside what may be reached. The starter
// holds the sandbox to it, or refuses. Zero values say nothing.
type Session struct {
	MinLevel string        `json:"min_level,omitempty"`
	Limits   bailey.Limits `json:"limits,omitzero"`
	Env      []string      `json:"env,omitempty"` // NAME to pass, NAME=VALUE to set
	Mounts   []Mount       `json:"mounts,omitempty"`
	Ports    []int         `json:"ports,omitempty"` // that may be reached from outside
	// AllowRead, AllowWrite, DenyRead and DenyWrite are absolute paths of the
	// host, with all below; the most specific decides.
	AllowRead  []string `json:"allow_read,omitempty"`
	AllowWrite []string `json:"allow_write,omitempty"`
	DenyRead   []string `json:"deny_read,omitempty"`
	DenyWrite  []string `json:"deny_write,omitempty"`
}

// Mount shows a file or folder of the host inside.
type Mount struct {
	Source string `json:"source"` // absolute, or below the workspace
	Target string `json:"target"`
	Write  bool   `json:"write,omitempty"`
}

// Updated is the answer to a changed policy.
type Updated struct {
	Policy string          `json:"policy"`
	Notes  []string        `json:"notes,omitempty"`
	Env    []string        `json:"env,omitempty"` // NAME=VALUE: all placeholders
	Saved  json.RawMessage `json:"saved,omitempty"`
}

// Usage is what has gone through a way out so far.
type Usage struct {
	Sent     int64 `json:"sent,omitempty"`     // bytes, of acts that have ended
	Received int64 `json:"received,omitempty"` // bytes, of acts that have ended
	// Activity grows whenever anything moves, in either direction, also in streams
	// that stay open. It counts nothing in particular.
	Activity int64 `json:"activity,omitempty"`
	Open     int   `json:"open,omitempty"`   // streams
	Asking   int   `json:"asking,omitempty"` // questions that wait for an answer
}

// Closed is what a sandbox's way out was used for.
type Closed struct {
	Requests int64 `json:"requests"` // that were allowed, and streams
	Sent     int64 `json:"sent"`     // bytes
	Received int64 `json:"received"` // bytes
	Denied
	// Saved is for Open.Saved.
	Saved json.RawMessage `json:"saved,omitempty"`
}

// Denied is what was refused to a sandbox.
type Denied struct {
	// Denials are those that differ, with how often each came. Further is how
	// many more there were than are kept.
	Denials []Denial `json:"denials,omitempty"`
	Further int64    `json:"further,omitempty"`
}

// Denial is one refused act; act.Denial has the same fields.
type Denial struct {
	Error   string `json:"error,omitempty"`
	Sandbox string `json:"sandbox,omitempty"`
	What    string `json:"what"`
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason"`
	Why     string `json:"why"`
	Ask     string `json:"how_to_ask,omitempty"`
	Hint    string `json:"hint,omitempty"`
	Seq     int64  `json:"seq,omitempty"`
	Count   int64  `json:"count,omitempty"` // in Closed: how often
}

// Question is an act that a rule wants a person to decide. What is in it comes
// from the sandbox: show it as printable text only.
type Question struct {
	Sandbox     string    `json:"sandbox"`
	ID          string    `json:"id,omitempty"` // as `bailey approvals` knows it
	What        string    `json:"what"`
	Host        string    `json:"host"`
	Port        int       `json:"port"`
	Method      string    `json:"method,omitempty"`
	Path        string    `json:"path,omitempty"`
	Query       []string  `json:"query,omitempty"`  // names
	Body        int64     `json:"body,omitempty"`   // bytes, -1 for a stream
	Client      string    `json:"client,omitempty"` // address and port of who asks, inside
	Rule        string    `json:"rule,omitempty"`
	Description string    `json:"description,omitempty"` // of the rule
	Scope       string    `json:"scope,omitempty"`       // all that the rule allows
	Secrets     []string  `json:"secrets,omitempty"`     // names
	Reason      string    `json:"reason,omitempty"`
	Digest      string    `json:"digest,omitempty"` // of the act that the answer is for
	Until       time.Time `json:"until,omitzero"`
}

// Verdict is a person's answer.
type Verdict string

// The answers. The zero Verdict is none: nobody could be asked.
const (
	Once       Verdict = "once"
	ForSession Verdict = "session"
	No         Verdict = "no"
)

// Answer answers a Question.
type Answer struct {
	Verdict Verdict `json:"verdict,omitempty"`
	By      string  `json:"by,omitempty"`
	Via     string  `json:"via,omitempty"`
}
