package policy

import (
	"net/netip"
)

// Policy is a parsed document. It is immutable.
type Policy struct {
	mode     Mode
	session  Session
	rules    []*Rule
	limits   RuleLimits
	secrets  map[string]*Secret
	sealed   bool // flags may not add rules
	document document
	index    index
	digest   string
}

// Mode says whether denials hold.
type Mode string

// The modes. Audit lets everything pass that policy denies, but for metadata
// services, and records what would have been denied.
const (
	Enforce Mode = "enforce"
	Audit   Mode = "audit"
)

// Mode gives the mode; Enforce unless the document asks for Audit.
func (p *Policy) Mode() Mode { return p.mode }

// Digest names the version: "sha256:" and the hash of the canonical form.
func (p *Policy) Digest() string { return p.digest }

// Rules gives the egress rules in order, profiles expanded.
func (p *Policy) Rules() []*Rule { return p.rules }

// Limits bound what goes out by all rules together: State.All is held against them.
func (p *Policy) Limits() RuleLimits { return p.limits }

// Session gives what the document says of the sandbox itself.
func (p *Policy) Session() Session { return p.session }

// line gives the line of a rule in the document.
func (p *Policy) line(rule int) int {
	if rule < len(p.document.Egress.Rules) {
		return p.document.Egress.Rules[rule].line
	}
	return 0
}

// Secrets gives the secrets that the document binds, by name.
func (p *Policy) Secrets() map[string]*Secret { return p.secrets }

// Rule is one egress rule.
type Rule struct {
	Name        string // unique; egress[3] when the document gives none
	Description string // for the model
	Action      Verdict
	// Protocol is HTTP, HTTPS, TCP, or "" for both of the first two.
	Protocol Scheme
	// TLS of a TCP rule is Splice.
	TLS       TLSMode
	WebSocket bool
	// Secrets are names of Policy.Secrets. Where there is one, the host is
	// pinned: every credential but it is refused.
	Secrets []string
	// PlainSecrets lets them go over plain HTTP.
	PlainSecrets bool
	Limits       RuleLimits
	// Internal are ranges that are not public and may be dialled all the same.
	Internal []netip.Prefix

	hosts     []hostPattern
	addresses []netip.Prefix
	ports     []portRange
	methods   []string
	paths     []pathPattern
	query     queryRule
	when      *condition
	pinned    bool // holds only where a secret is bound
}

// RuleLimits bound what goes out by a rule; 0 is no bound.
type RuleLimits struct {
	Requests, Upload, Leak int64
}

// TLSMode says whether the gate looks into TLS.
type TLSMode int

// The TLS modes.
const (
	Terminate TLSMode = iota
	Splice
)
