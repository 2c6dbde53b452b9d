// Package secrets is the sealed store: the values that the gate puts into
// requests, and the few other things that must not lie about in the clear.
//
// Below the data folder it keeps
//
//	keys/secrets.age-key   the key, an age identity file, 0600
//	keys/placeholder-mark  ten letters that every placeholder of this installation carries
//	secrets/NAME.json      one secret: metadata, and its versions, each sealed
//	secrets/sealed/KIND/NAME.age  other sealed things, such as a lineage's CA key
//
// Values are sealed with age (https://age-encryption.org/v1, X25519). Whoever
// has a copy of secrets/ without the key has metadata and nothing else.
//
// No error, log or listing of this package holds a value.
package secrets
