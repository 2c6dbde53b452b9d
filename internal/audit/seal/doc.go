// Package seal signs and verifies the audit log: the Ed25519 key (RFC 8032),
// what was signed last, the whole check of a log, and bundles that another
// machine can check. It is apart from package audit so that who only appends
// does not link it.
package seal
