package policy

import (
	"crypto/sha256"
	"encoding/hex"
)

// Parse reads a document, YAML or JSON. An error names the line and the fix.
func Parse(text []byte) (*Policy, error) {
	d, err := read(text)
	if err != nil {
		return nil, err
	}
	return compile(d)
}

// compile checks a document and makes the policy of it.
func compile(d *document) (*Policy, error) {
	if d.Version != 1 {
		return nil, &Error{At: "version", Why: "the version is missing, or not 1", Fix: "begin with version: 1"}
	}
	p := &Policy{mode: Enforce, sealed: d.Sealed}
	switch d.Mode {
	case "", string(Enforce):
	case string(Audit):
		p.mode = Audit
	default:
		return nil, &Error{At: "mode", Why: "there is no mode " + d.Mode, Fix: "write enforce or audit"}
	}
	if d.Egress.Default != "" && d.Egress.Default != "deny" {
		return nil, &Error{At: "egress.default", Why: "what no rule allows is denied", Fix: "write default: deny, or leave it out"}
	}
	var err error
	if p.limits, err = d.Egress.Limits.compile("egress.limits"); err != nil {
		return nil, err
	}
	if p.session, err = compileSession(d); err != nil {
		return nil, err
	}
	expanded, err := expand(d.Egress.Rules)
	if err != nil {
		return nil, err
	}
	d.Egress.Rules = expanded
	p.document = *d
	if err := p.compileRules(expanded); err != nil {
		return nil, err
	}
	if err := p.compileSecrets(d.Secrets); err != nil {
		return nil, err
	}
	p.index = newIndex(p.rules)
	sum := sha256.Sum256(p.Canonical())
	p.digest = "sha256:" + hex.EncodeToString(sum[:])
	return p, nil
}
