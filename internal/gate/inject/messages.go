package inject

import (
	"encoding/binary"
	"net/http"
	"strings"
)

// isGRPC tells whether a body is a row of gRPC's messages ("gRPC over HTTP/2",
// and gRPC-Web, whose trailers are a message too).
func isGRPC(h http.Header) bool {
	kind := strings.ToLower(h.Get("Content-Type"))
	return strings.HasPrefix(kind, "application/grpc") && !strings.HasPrefix(kind, "application/grpc-web-text")
}

// Codings of the messages in a body, below the body's own: of gRPC, and of
// streams of the Connect protocol.
var (
	messageCodings = []string{"Grpc-Encoding", "Connect-Content-Encoding"}
	messageAccepts = []string{"Grpc-Accept-Encoding", "Connect-Accept-Encoding"}
)

// messageCoding gives the coding of a body's messages, "" if they are as they are.
func messageCoding(h http.Header) string {
	for _, name := range messageCodings {
		for _, v := range h[name] {
			if v = strings.TrimSpace(v); v != "" && !strings.EqualFold(v, "identity") {
				return v
			}
		}
	}
	return ""
}

// messages finds the ends of gRPC's messages. Each has a byte of flags, four of
// length, and is searched as a text of its own: a peer may wait for the whole of
// it before it says more.
type messages struct {
	strict bool // compressed ones are refused
	head   []byte
	left   uint32 // of the message, when head is whole
}

// next gives how many bytes of p end a message, and whether they do.
func (m *messages) next(p []byte) (n int, whole bool, err error) {
	if need := min(5-len(m.head), len(p)); need > 0 {
		m.head = append(m.head, p[:need]...)
		n = need
		if len(m.head) < 5 {
			return n, false, nil
		}
		// Bit 0 is compressed, bit 7 is gRPC-Web's trailers.
		if m.strict && m.head[0]&^0x80 != 0 {
			return 0, false, refused(Unreadable, "a message in the body is compressed, or the body is not what its type says")
		}
		m.left = binary.BigEndian.Uint32(m.head[1:])
	}
	take := min(uint64(m.left), uint64(len(p)-n))
	m.left -= uint32(take)
	if m.left > 0 {
		return len(p), false, nil
	}
	m.head = m.head[:0]
	return n + int(take), true, nil
}
