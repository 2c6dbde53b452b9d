package web

import (
	"net/http"
	"net/textproto"
	"strings"
)

// hopByHop are fields for one connection only (RFC 9110, 7.6.1) and those that
// are treated as such.
var hopByHop = map[string]bool{
	"Connection": true, "Proxy-Connection": true, "Keep-Alive": true, "Te": true, "Trailer": true,
	"Transfer-Encoding": true, "Upgrade": true, "Http2-Settings": true, "Alt-Svc": true,
	"Proxy-Authenticate": true, "Proxy-Authorization": true, "Proxy-Authentication-Info": true,
}

// claims are fields by which servers take a request for another than it was
// judged as: another method, path or sender.
var claims = map[string]bool{
	"X-Http-Method-Override": true, "X-Http-Method": true, "X-Method-Override": true,
	"X-Original-Url": true, "X-Rewrite-Url": true, "X-Original-Host": true, "X-Host": true,
	"Forwarded": true, "Via": true, "X-Real-Ip": true, "X-Client-Ip": true, "X-Cluster-Client-Ip": true,
	"Expect":         true, // it was answered by the gate
	"True-Client-Ip": true, "Cf-Connecting-Ip": true, "Fastly-Client-Ip": true, "X-Envoy-Original-Path": true,
}

// strip takes out of a request's fields what is not for the server. te tells
// that the sandbox takes trailers, which gRPC asks for.
func strip(h http.Header) (te bool) {
	for _, v := range h["Te"] {
		for option := range strings.SplitSeq(v, ",") {
			te = te || strings.EqualFold(strings.Trim(option, " \t"), "trailers")
		}
	}
	nominated(h)
	for name := range h {
		if hopByHop[name] || claims[name] || prefixed(name) {
			delete(h, name)
		}
	}
	return te
}

// prefixed tells whether a field belongs to a family that is not let through.
// Programs that take fields from variables (CGI, WSGI, PHP) read every sign in a
// name but letters and digits as the same, and see X_Api!Key as X-Api-Key.
func prefixed(name string) bool {
	if odd := strings.IndexFunc(name, isOdd); odd >= 0 {
		dashed := textproto.CanonicalMIMEHeaderKey(strings.Map(func(c rune) rune {
			if isOdd(c) {
				return '-'
			}
			return c
		}, name))
		if hopByHop[dashed] || claims[dashed] || credentials[dashed] || framing[dashed] {
			return true
		}
		name = dashed
	}
	switch name[0] {
	case 'X':
		return strings.HasPrefix(name, "X-Forwarded-") || strings.HasPrefix(name, "X-Bailey-")
	case 'P':
		return strings.HasPrefix(name, "Proxy-")
	}
	return false
}

func isOdd(c rune) bool {
	return c != '-' && !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9')
}

// Spelt with an underscore, these have no use but to get past somebody.
var (
	credentials = map[string]bool{"Authorization": true, "Cookie": true, "X-Api-Key": true}
	framing     = map[string]bool{"Host": true, "Content-Length": true, "Content-Type": true, "Content-Encoding": true, "Expect": true}
)

// nominated deletes the fields that Connection names.
func nominated(h http.Header) {
	for _, v := range h["Connection"] {
		for option := range strings.SplitSeq(v, ",") {
			if option = textproto.TrimString(option); option != "" {
				delete(h, textproto.CanonicalMIMEHeaderKey(option))
			}
		}
	}
}

// stripAnswer does for an answer what strip does for a request.
func stripAnswer(h http.Header) {
	nominated(h)
	for name := range hopByHop {
		delete(h, name)
	}
}
