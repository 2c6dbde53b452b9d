// Package plan is what the egress suite's two sides know of each other: the fake
// internet's names and addresses, and how canaries are made. It imports nothing,
// so that the attack program stays small and static.
package plan
