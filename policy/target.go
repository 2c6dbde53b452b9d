package policy

import (
	"fmt"
	"net/url"
	"strings"
)

// ParseTarget gives the request that a client makes of a URL: http, https, ws,
// wss, or tcp://HOST:PORT for a stream that is neither. A URL without a scheme
// is https. Its stage is Head, for tcp Connect. method "" is GET.
func ParseTarget(target, method string) (Request, error) {
	scheme, rest, found := strings.Cut(target, "://")
	if !found {
		scheme, rest = "https", target
	}
	r := Request{Stage: Head, Method: method, BodySize: 0}
	port := uint16(0)
	switch scheme {
	case "http", "ws":
		r.Scheme, port = HTTP, 80
	case "https", "wss":
		r.Scheme, port = HTTPS, 443
	case "tcp":
		r.Scheme, r.Stage = TCP, Connect
	default:
		return r, fmt.Errorf("there is no protocol %q: write http, https, ws, wss or tcp", scheme)
	}
	r.WebSocket = strings.HasPrefix(scheme, "ws")
	if method == "" && r.Scheme != TCP {
		r.Method = "GET"
	}
	rest, _, _ = strings.Cut(rest, "#") // a fragment is not sent
	authority, path := rest, ""
	if i := strings.IndexAny(rest, "/?"); i >= 0 {
		authority, path = rest[:i], rest[i:]
	}
	var err error
	if r.To, err = ParseAuthority(authority, port); err != nil {
		return r, err
	}
	if r.Scheme == TCP {
		if path != "" && path != "/" {
			return r, fmt.Errorf("a tcp stream has no path %q", path)
		}
		return r, nil
	}
	if !isToken(r.Method) {
		return r, fmt.Errorf("%q is no method", r.Method)
	}
	path, query, _ := strings.Cut(path, "?")
	if r.Path, err = CanonicalPath(path); err != nil {
		return r, err
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return r, fmt.Errorf("the query: %w", err)
	}
	r.Query = values
	return r, nil
}

// Step is the decision of one stage.
type Step struct {
	Request  Request
	Decision Decision
}

// Walk takes a request through the stages as the gate does, and gives the
// decisions; the last one holds. For https the connection is first seen as TLS,
// so that a rule that splices decides there.
func Walk(p *Policy, r Request) []Step {
	var steps []Step
	try := func(q Request) Decision {
		d := Decide(p, q)
		steps = append(steps, Step{q, d})
		return d
	}
	to := Request{Stage: Name, To: At(r.To.Host(), 0), BodySize: -1, State: r.State}
	if try(to).Verdict != Continue {
		return steps
	}
	connect := to
	connect.Stage, connect.To, connect.Scheme = Connect, r.To, r.Scheme
	if r.Scheme == HTTPS {
		connect.Scheme = TLS
	}
	if d := try(connect); d.Verdict != Continue || r.Stage == Connect {
		return steps
	}
	head := r
	head.Stage, head.Body = Head, nil
	if try(head).Verdict == Continue {
		body := r
		body.Stage = Body
		body.BodySize = int64(len(r.Body))
		try(body)
	}
	return steps
}

// Final gives the last decision of a walk. What is still open then is denied.
func Final(steps []Step) Decision {
	if len(steps) == 0 {
		return Decision{Reason: ReasonInvalid, Why: "nothing was asked"}
	}
	return steps[len(steps)-1].Decision
}
