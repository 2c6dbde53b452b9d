// Package stream takes the TCP streams of one sandbox, whatever they speak, and
// leads each to where policy lets it go.
//
// A stream arrives at the sandbox's listener by a redirect, with its original
// destination as the kernel remembers it, or names its destination to the proxy
// (SOCKS5, or HTTP's CONNECT). A destination is a name, as the sandbox's table
// of synthetic addresses has it; an address that is none of these matches only
// rules for addresses. What a rule for TCP allows is passed on as it is; under a
// rule for HTTP the first bytes say what is spoken, and package web goes on, or,
// where the rule says splice, the ClientHello is held against the name and the
// rest is passed on unread.
//
// A refused stream is reset.
package stream
