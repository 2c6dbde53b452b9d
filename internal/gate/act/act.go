package act

import (
	"context"
	"net"
	"net/netip"

	"github.com/bailey-sandbox/bailey/internal/audit"
	"github.com/bailey-sandbox/bailey/policy"
)

// Via is how an act came to the gate.
type Via string

// The ways.
const (
	Redirect  Via = "redirect"
	HTTPProxy Via = "http-proxy"
	SOCKS5    Via = "socks5"
	DNS       Via = "dns"
)

// Kind is what an act is in the log.
type Kind string

// The kinds.
const (
	NameLookup Kind = "name"
	Stream     Kind = "stream"
	HTTP       Kind = "http"
	WebSocket  Kind = "websocket"
)

// Box is one sandbox, as the parts of the gate see it. Package gate implements
// it; tests of a part bring their own.
type Box interface {
	// Begin starts an act. It is judged by the policy version that is in force
	// at its first Judge, by that one alone.
	Begin(kind Kind, via Via, to policy.Authority) Act
	// Dial connects to an act's destination: the name is resolved by the gate,
	// only addresses that may be reached are dialled, and exactly those that
	// were checked.
	Dial(ctx context.Context, a Act, rule *policy.Rule) (net.Conn, error)
	// Hold registers an open stream, so that it is ended within a second when
	// a new policy version forbids what it was allowed for. Call done at its end.
	Hold(to policy.Request, end func(Denial)) (done func())
	// Secrets gives the sandbox's grants, or nil.
	Secrets() Secrets
}

// Act is one outbound act.
type Act interface {
	// Judge decides, and where the rule says ask, waits for the answer: the
	// decision that comes back is Allow, Deny or Continue. Each call adds a step
	// to the record.
	Judge(ctx context.Context, r policy.Request) policy.Decision
	// Refuse denies for a reason of the gate's own, such as an SNI that differs.
	// After Commit it says that an allowed act was stopped: its End is a denial
	// then, with this reason.
	Refuse(reason, why string) policy.Decision
	// Record gives the record to fill in, until Commit.
	Record() *audit.Egress
	// Commit writes the record: before a byte of the act moves, and after a
	// denial. If it fails, nothing may pass.
	Commit() error
	// Count adds bytes or requests to the rule's counters and gives false when
	// a limit is passed: the act must stop.
	Count(u policy.Usage) bool
	// End writes how an allowed act ended, with the refusal if there was one since
	// Commit. Once; later calls do nothing.
	End(o audit.Outcome)
	// Denial says what was refused, for whoever asked. Only after a denial.
	Denial() Denial
}

// Denial is one refused act, written for the model that reads it.
type Denial struct {
	Error   string `json:"error"` // "denied"
	Sandbox string `json:"sandbox,omitempty"`
	What    string `json:"what"` // "GET https://example.com/x"
	Rule    string `json:"rule,omitempty"`
	Reason  string `json:"reason"` // stable code
	Why     string `json:"why"`
	Ask     string `json:"how_to_ask"`
	Hint    string `json:"hint"`          // do not try to go around it
	Seq     int64  `json:"seq,omitempty"` // of the audit record
}

// Dialer connects to names. It never dials an address it did not check.
type Dialer interface {
	// Dial resolves to's host and connects to the first address that may be
	// reached. The rule may allow internal ranges. addr is what was dialled.
	Dial(ctx context.Context, to policy.Authority, rule *policy.Rule) (c net.Conn, addr netip.AddrPort, err error)
}

// Refused is a Dialer's error for an address that must not be reached.
type Refused struct{ Reason, Why string }

func (e *Refused) Error() string { return e.Why }
