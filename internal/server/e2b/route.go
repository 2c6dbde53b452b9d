package e2b

import (
	"context"
	"net"
	"net/http"
	"net/netip"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// envdPort is where envd is, in E2B's words: of it the front answers itself.
const envdPort = 49983

// The headers by which clients say which sandbox and port a request is for.
const (
	sandboxHeader = "E2b-Sandbox-Id"
	portHeader    = "E2b-Sandbox-Port"
)

// place is where a request leads; without a sandbox to the control API.
type place struct {
	sandbox string
	port    int
}

// route reads where a request leads. A host PORT-ID.DOMAIN wins over headers, so that
// a page on one sandbox's host cannot speak to another by them.
func route(r *http.Request, domain string) (place, *failure) {
	name := hostOf(r.Host)
	label, in := strings.CutSuffix(name, "."+domain)
	if domain != "" && in && label != "api" && label != "sandbox" {
		port, id, ok := parseLabel(label)
		if !ok {
			return place{}, fail(http.StatusBadRequest, "Invalid host: it is no PORT-ID."+domain)
		}
		return place{id, port}, nil
	}
	if domain != "" && in && label == "api" {
		return place{}, nil
	}
	id, port := r.Header.Get(sandboxHeader), r.Header.Get(portHeader)
	if id == "" && port == "" {
		return place{}, nil
	}
	if !isAddress(name) {
		if _, _, ok := parseLabel(firstLabel(name)); ok {
			return place{}, fail(http.StatusBadRequest, "Invalid host: it is that of a port, below a domain that this daemon does not have")
		}
	}
	if id == "" {
		return place{}, fail(http.StatusBadRequest, "missing header: "+sandboxHeader)
	}
	if port == "" {
		return place{}, fail(http.StatusBadRequest, "missing header: "+portHeader)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	id, _, _ = strings.Cut(id, "-")
	if err != nil || n == 0 || !isID(id) {
		return place{}, fail(http.StatusBadRequest, "invalid header: "+sandboxHeader+" or "+portHeader)
	}
	return place{id, int(n)}, nil
}

// firstLabel gives what is before the first dot of a host.
func firstLabel(host string) string {
	first, _, _ := strings.Cut(hostOf(host), ".")
	return first
}

func isAddress(name string) bool {
	_, err := netip.ParseAddr(name)
	return err == nil
}

// hostOf gives the name of a Host header in lower case, without port and brackets.
func hostOf(host string) string {
	if h, _, err := net.SplitHostPort(host); err == nil {
		host = h
	}
	return strings.TrimSuffix(strings.ToLower(strings.Trim(host, "[]")), ".")
}

// parseLabel reads PORT-ID.
func parseLabel(label string) (port int, id string, ok bool) {
	digits, id, both := strings.Cut(label, "-")
	n, err := strconv.ParseUint(digits, 10, 16)
	if !both || err != nil || n == 0 || strconv.FormatUint(n, 10) != digits || len(label) > 63 || !isID(id) {
		return 0, "", false
	}
	return int(n), id, true
}

// isID says whether s can be a sandbox's whole id.
func isID(s string) bool {
	return s != "" && len(s) <= 40 && strings.Trim(s, "abcdefghijklmnopqrstuvwxyz0123456789") == ""
}

// Decide gives an error unless a name is the API's or of a sandbox that is there: for
// such a name alone a certificate is made.
func (s *Server) Decide(ctx context.Context, name string) error {
	label, in := strings.CutSuffix(hostOf(name), "."+s.opt.Domain)
	if s.opt.Domain != "" && in && (label == "api" || label == "sandbox") {
		return nil
	}
	_, id, ok := parseLabel(label)
	if s.opt.Domain == "" || !in || !ok {
		return bailey.Errorf(bailey.CodeNotFound, "make a certificate for "+strconv.Quote(name), "", "it is no name of a sandbox's")
	}
	_, err := s.engine.Sandbox(ctx, nobody, id)
	return err
}
