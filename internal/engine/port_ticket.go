package engine

import (
	"context"
	"crypto/hmac"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// How those are let in who may reach a private port.
const (
	TokenPrefix   = "bailey_port_" // of a token, so that it is known for one among other bearer tokens
	LinkParameter = "bailey_token" // the query's parameter in a link
)

// What a signature is for: a link is no cookie, nor the other way round.
const (
	forLink   = "link"
	forCookie = "cookie"
)

// Exposed is a port that is reachable from outside, as whoever leads requests there
// sees it.
type Exposed struct {
	Sandbox string // whole id
	Port    int
	Public  bool
	TCP     bool
	// Asleep: the sandbox does not run, and the first request wakes it.
	Asleep bool
	// Started is when this generation did; zero for none.
	Started time.Time

	hash, key []byte
	now       func() time.Time
}

// Exposed finds a port by the whole id of a sandbox, or by its name. One that is not
// there, or not exposed, is the error not_found, and of a sandbox that has ended and
// had it exposed sandbox_ended. Nobody is asked who may: see its methods.
func (e *Engine) Exposed(ctx context.Context, ref string, port int) (Exposed, error) {
	none := bailey.Errorf(bailey.CodeNotFound, fmt.Sprintf("reach port %d of %s", port, ref), "`bailey port SANDBOX PORT --expose` makes it reachable",
		"there is no such sandbox, or the port is not reachable from outside")
	b := e.boxOf(ref)
	if b == nil {
		b = e.named(ref)
	}
	if b != nil {
		if x, err := e.exposedOf(b.id, b.record(), port); err == nil {
			return x, nil
		}
		return Exposed{}, none
	}
	rows, err := e.db.FindSandboxes(ctx, ref)
	if err != nil {
		return Exposed{}, err
	}
	if len(rows) != 1 || rows[0].ID != ref {
		return Exposed{}, none
	}
	r, err := readRecord(rows[0])
	if err != nil {
		return Exposed{}, err
	}
	if _, err := e.exposedOf(ref, r, port); err != nil {
		return Exposed{}, none
	}
	return Exposed{}, endedError("use the sandbox ", r)
}

func (e *Engine) named(name string) *box {
	if name == "" {
		return nil
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	for _, b := range e.boxes {
		if b.record().Sandbox.Name == name {
			return b
		}
	}
	return nil
}

func (e *Engine) exposedOf(id string, r *record, port int) (Exposed, error) {
	i := slices.IndexFunc(r.Ports, func(x exposed) bool { return x.Port == port })
	if i < 0 {
		return Exposed{}, bailey.Errorf(bailey.CodeNotFound, fmt.Sprintf("find port %d of the sandbox %s", port, id), "expose it first", "it is not reachable from outside")
	}
	x := r.Ports[i]
	out := Exposed{Sandbox: id, Port: port, Public: x.Public, TCP: x.TCP != 0, Asleep: r.Sandbox.State != api.StateRunning, hash: x.Hash, key: x.Key, now: e.clock.Now}
	if r.Sandbox.Started != nil {
		out.Started = *r.Sandbox.Started
	}
	return out, nil
}

// Token says whether a token lets in.
func (x Exposed) Token(token string) bool {
	sum := sha256.Sum256([]byte(token))
	return len(x.hash) == len(sum) && subtle.ConstantTimeCompare(sum[:], x.hash) == 1
}

// Link says whether what a link has as its parameter lets in, and gives what its
// bearer is to have as a cookie from then on, and until when.
func (x Exposed) Link(value string) (cookie string, until time.Time, ok bool) {
	if until, ok = x.check(forLink, value); !ok {
		return "", until, false
	}
	return x.sign(forCookie, until), until, true
}

// Cookie says whether a cookie lets in.
func (x Exposed) Cookie(value string) bool {
	_, ok := x.check(forCookie, value)
	return ok
}

// sign gives END.SIGNATURE: until when it is good, and that the port's key says so.
func (x Exposed) sign(use string, until time.Time) string {
	end := strconv.FormatInt(until.Unix(), 10)
	return end + "." + base64.RawURLEncoding.EncodeToString(x.mac(use, end))
}

func (x Exposed) mac(use, end string) []byte {
	m := hmac.New(sha256.New, x.key)
	fmt.Fprintf(m, "%s\n%s\n%d\n%s", use, x.Sandbox, x.Port, end)
	return m.Sum(nil)
}

func (x Exposed) check(use, value string) (until time.Time, ok bool) {
	end, sum, both := strings.Cut(value, ".")
	if !both || len(x.key) == 0 || len(value) > 128 {
		return until, false
	}
	got, err := base64.RawURLEncoding.DecodeString(sum)
	if err != nil || !hmac.Equal(got, x.mac(use, end)) {
		return until, false
	}
	n, err := strconv.ParseInt(end, 10, 64) // signed, so that it is one
	until = time.Unix(n, 0).UTC()
	return until, err == nil && x.now().Before(until)
}
