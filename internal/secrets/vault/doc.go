// Package vault is the one way on which unsealed secrets reach a gate: a process
// of its own that holds the store's key and says, over a pipe, what the secrets
// are and whenever that changes. The gate, which reads what hostile programs
// write, has neither key nor store, and nothing that it could say to the vault.
//
// It fails closed. A secret is used while the vault stands by it, and no longer:
// what is revoked, removed, damaged or expired is not, and when the vault ends
// none is. All values that were ever told are still taken out of answers.
package vault
