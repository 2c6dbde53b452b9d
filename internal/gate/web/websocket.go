package web

import (
	"crypto/sha1"
	"encoding/base64"
	"net/http"
	"strings"
)

// handshake checks the opening of a WebSocket (RFC 6455, 4.2.1).
func handshake(r *http.Request) *malformed {
	version, key := r.Header["Sec-Websocket-Version"], r.Header["Sec-Websocket-Key"]
	switch {
	case r.Method != http.MethodGet || r.ContentLength != 0:
		return bad("a WebSocket begins with a GET without a body")
	case len(version) != 1 || version[0] != "13":
		return bad("of WebSocket there is version 13 only")
	case len(key) != 1:
		return bad("a WebSocket has one key")
	}
	if b, err := base64.StdEncoding.DecodeString(key[0]); err != nil || len(b) != 16 {
		return bad("a WebSocket's key has 16 bytes")
	}
	return nil
}

// openSocket makes the request to the server. Extensions are left out: what is
// compressed could not be looked into.
func (x *exchange) openSocket() {
	h := x.r.Header
	delete(h, "Sec-Websocket-Extensions")
	h["Connection"] = []string{"Upgrade"}
	h["Upgrade"] = []string{"websocket"}
}

// accepted checks the server's side of the opening (RFC 6455, 4.1).
func accepted(r *http.Request, resp *http.Response) bool {
	sum := sha1.Sum([]byte(r.Header.Get("Sec-Websocket-Key") + "258EAFA5-E914-47DA-95CA-C5AB0DC85B11"))
	if !strings.EqualFold(resp.Header.Get("Upgrade"), "websocket") ||
		resp.Header.Get("Sec-Websocket-Accept") != base64.StdEncoding.EncodeToString(sum[:]) ||
		len(resp.Header["Sec-Websocket-Extensions"]) > 0 {
		return false
	}
	chosen := resp.Header["Sec-Websocket-Protocol"]
	if len(chosen) == 0 {
		return true
	}
	for _, v := range r.Header["Sec-Websocket-Protocol"] {
		for offered := range strings.SplitSeq(v, ",") {
			if len(chosen) == 1 && strings.TrimSpace(offered) == chosen[0] {
				return true
			}
		}
	}
	return false
}
