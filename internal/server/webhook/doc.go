// Package webhook tells URLs of events: each a POST of an api.Event, signed with
// HMAC-SHA256, tried again with growing pauses, in order, at least once. How far a
// webhook is lies in the state database, so that a restart loses none.
//
// A target is an address on the public internet unless the operator has allowed
// others: a caller must not be able to have the daemon speak to its own host, its
// network or a cloud's metadata service. It touches the network at those addresses
// and the webhooks' rows.
package webhook
