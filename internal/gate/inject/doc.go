// Package inject is act.Secrets: it puts the values of secrets into requests in
// place of a sandbox's placeholders, and takes them out of answers.
//
// A sandbox never holds a value, only a placeholder: a name that means
// something at its own gate, for the hosts and places that the policy binds the
// secret to. Anything that looks like a placeholder of this installation and is
// on its way elsewhere stops the request.
//
// What a sandbox sends is searched as it is, percent-decoded, JSON-unescaped,
// in base64 in its three alignments and in hex. What it gets is searched for
// the values of all its secrets in the same forms. A value that the other side
// reverses, encrypts or spells out otherwise is not found; docs/secrets.md says
// what that means.
package inject
