package stream

import (
	"encoding/binary"
	"errors"
	"io"
	"net/netip"
	"strconv"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

// SOCKS5 as in RFC 1928: no authentication, since the listener is the identity;
// CONNECT only.
const (
	socksVersion = 5

	socksNoAuth      = 0
	socksNoMethod    = 0xff
	socksConnect     = 1
	socksIPv4        = 1
	socksDomain      = 3
	socksIPv6        = 4
	socksSucceeded   = 0
	socksGeneral     = 1
	socksNotAllowed  = 2
	socksHost        = 4
	socksRefused     = 5
	socksTimeout     = 6 // TTL expired
	socksCommand     = 7
	socksAddressType = 8
)

// socksError is a request that is not served. Without a reply the client is only
// told that no method is acceptable, or nothing.
type socksError struct {
	reply  byte
	reason string
	why    string
	host   string // printable
}

func (e *socksError) Error() string { return e.why }

// socksRequest reads a greeting and a request, and answers the greeting. A
// domain is read by the grammar of host names, so that no byte of it can mean
// something else further on.
func socksRequest(c io.ReadWriter) (policy.Authority, error) {
	var none policy.Authority
	head := make([]byte, 2, 257)
	if _, err := io.ReadFull(c, head); err != nil {
		return none, err
	}
	if head[0] != socksVersion {
		return none, &socksError{why: "not SOCKS5"}
	}
	methods := make([]byte, head[1])
	if _, err := io.ReadFull(c, methods); err != nil {
		return none, err
	}
	chosen := byte(socksNoMethod)
	for _, m := range methods {
		if m == socksNoAuth {
			chosen = socksNoAuth
		}
	}
	if _, err := c.Write([]byte{socksVersion, chosen}); err != nil {
		return none, err
	}
	if chosen == socksNoMethod {
		return none, &socksError{why: "the client wants to authenticate"}
	}
	return socksDestination(c)
}

// socksDestination reads the request behind the greeting.
func socksDestination(r io.Reader) (policy.Authority, error) {
	var none policy.Authority
	var head [4]byte
	if _, err := io.ReadFull(r, head[:]); err != nil {
		return none, err
	}
	if head[0] != socksVersion || head[2] != 0 {
		return none, &socksError{reply: socksGeneral, reason: "socks", why: "the SOCKS request is malformed"}
	}
	size := 0
	switch head[3] {
	case socksIPv4:
		size = 4
	case socksIPv6:
		size = 16
	case socksDomain:
		var n [1]byte
		if _, err := io.ReadFull(r, n[:]); err != nil {
			return none, err
		}
		size = int(n[0])
	default:
		return none, &socksError{reply: socksAddressType, reason: "socks", why: "the SOCKS request has an address of an unknown type"}
	}
	rest := make([]byte, size+2)
	if _, err := io.ReadFull(r, rest); err != nil {
		return none, err
	}
	text := string(rest[:size])
	if head[3] != socksDomain {
		a, _ := netip.AddrFromSlice(rest[:size])
		text = a.Unmap().String()
	}
	bad := &socksError{host: quoted(text)}
	if head[1] != socksConnect {
		bad.reply, bad.reason, bad.why = socksCommand, "socks_command", "only CONNECT is served; BIND and UDP are not"
		return none, bad
	}
	h, err := policy.ParseHost(text)
	if err != nil {
		bad.reply, bad.reason, bad.why = socksGeneral, "bad_name", "this is not a host name"
		return none, bad
	}
	p := binary.BigEndian.Uint16(rest[size:])
	if p == 0 {
		bad.reply, bad.reason, bad.why = socksGeneral, "socks", "port 0 is no destination"
		return none, bad
	}
	return policy.At(h, p), nil
}

// quoted writes what a client sent so that it can be shown.
func quoted(s string) string {
	q := strconv.QuoteToASCII(s)
	return q[1 : len(q)-1]
}

// socksReply writes an answer, with no bound address: it would say nothing.
func socksReply(w io.Writer, code byte) error {
	_, err := w.Write([]byte{socksVersion, code, 0, socksIPv4, 0, 0, 0, 0, 0, 0})
	return err
}

// socksFailure is the reply for an upstream that cannot be reached.
func socksFailure(err error) byte {
	var u *act.Unreachable
	if !errors.As(err, &u) {
		return socksGeneral
	}
	switch u.Code {
	case "connect_refused":
		return socksRefused
	case "connect_timeout":
		return socksTimeout
	}
	return socksHost
}
