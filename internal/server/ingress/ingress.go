package ingress

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// Engine is where the sandboxes are.
type Engine interface {
	Exposed(ctx context.Context, ref string, port int) (engine.Exposed, error)
	DialPort(ctx context.Context, ref string, port int) (net.Conn, error)
}

// Options configure a Handler.
type Options struct {
	Engine Engine
	Domain string // below which the ports are
	Log    *slog.Logger
	// Wait bounds how long a request waits for its sandbox to be woken and for a
	// server in one that has just been started; 0 is a minute.
	Wait time.Duration
}

// fresh is how long after the start of a sandbox its server may not be there yet.
const fresh = 15 * time.Second

// Handler answers requests to ports. Requests to names that are not below the domain
// it answers with misdirected.
type Handler struct {
	opt     Options
	fresh   time.Duration
	proxy   *httputil.ReverseProxy
	closing context.Context
	close   context.CancelFunc
}

// New makes a Handler.
func New(opt Options) *Handler {
	opt.Domain = strings.ToLower(strings.Trim(opt.Domain, "."))
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Wait == 0 {
		opt.Wait = time.Minute
	}
	h := &Handler{opt: opt, fresh: fresh}
	h.closing, h.close = context.WithCancel(context.Background())
	h.proxy = &httputil.ReverseProxy{
		Rewrite:        rewrite,
		ModifyResponse: h.confine,
		ErrorHandler:   h.failed,
		FlushInterval:  -1, // whoever sends a piece means it to arrive
		ErrorLog:       slog.NewLogLogger(opt.Log.Handler(), slog.LevelDebug),
		Transport: &http.Transport{
			DialContext: h.dial,
			// A connection that was kept open would not wake the sandbox that has been
			// paused since, and nobody would answer on it.
			DisableKeepAlives:      true,
			DisableCompression:     true, // the body is the sandbox's
			MaxResponseHeaderBytes: 256 << 10,
			ExpectContinueTimeout:  5 * time.Second,
		},
	}
	return h
}

// Close breaks streams that have no end, so that their clients come back to the next
// daemon. Other requests go on.
func (h *Handler) Close() { h.close() }

// Below says whether a Host header is of a name below the domain.
func (h *Handler) Below(host string) bool {
	_, _, below, _ := Target(host, h.opt.Domain)
	return below
}

// Decide gives an error unless name leads to a port that is reachable: for such a
// name alone a certificate is made.
func (h *Handler) Decide(ctx context.Context, name string) error {
	port, ref, _, ok := Target(name, h.opt.Domain)
	if !ok {
		return bailey.Errorf(bailey.CodeNotFound, "make a certificate for "+strconv.Quote(name), "", "it is no name of a port")
	}
	_, err := h.opt.Engine.Exposed(ctx, ref, port)
	return err
}

// call is what is known about a request on its way to a sandbox.
type call struct {
	to     engine.Exposed
	cancel context.CancelFunc
	late   time.Time // until when a server may not be there yet
	stop   func() bool
}

type callKey struct{}

// ServeHTTP implements http.Handler.
func (h *Handler) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	port, ref, below, ok := Target(r.Host, h.opt.Domain)
	if !ok {
		status := http.StatusMisdirectedRequest
		if below {
			status = http.StatusNotFound
		}
		answer(w, r, status, bailey.Errorf(bailey.CodeNotFound, "find what "+strconv.Quote(clip(r.Host))+" is", "use PORT-ID."+h.opt.Domain, "it is no name of a port of a sandbox"))
		return
	}
	if r.Method == http.MethodConnect || r.Method == http.MethodTrace {
		answer(w, r, http.StatusMethodNotAllowed, bailey.Errorf(bailey.CodeUsage, "lead the request into a sandbox", "use another method", "%s is not for servers behind others", r.Method))
		return
	}
	// Of the request as it goes on, not of the one that the server has.
	r = r.Clone(r.Context())
	c := take(r.Header, r.URL)
	x, err := h.opt.Engine.Exposed(r.Context(), ref, port)
	if err == nil && x.TCP {
		err = bailey.Errorf(bailey.CodeNotFound, fmt.Sprintf("reach port %d of %s", port, ref), "use its address, which `bailey port SANDBOX --ls` shows", "it is reachable by TCP only")
	}
	if err != nil {
		answer(w, r, 0, err)
		return
	}
	a := admit(x, c, r)
	if !a.ok {
		answer(w, r, 0, bailey.Errorf(bailey.CodeUnauthorized, "let the request in", "send the header "+TokenHeader+", or open a link that `bailey port SANDBOX PORT --link 1h` makes",
			"the port is private, and the request has no valid token, link or cookie of this very host"))
		return
	}
	if ref != x.Sandbox { // a name: another sandbox may have it one day, and must not get this one's cookies
		to := *r.URL
		if c.link != "" {
			to.RawQuery = strings.TrimPrefix(to.RawQuery+"&"+engine.LinkParameter+"="+url.QueryEscape(c.link), "&")
		}
		go302(w, http.StatusTemporaryRedirect, "//"+strconv.Itoa(port)+"-"+x.Sandbox+"."+h.opt.Domain+portOf(r.Host)+local(&to))
		return
	}
	if a.cookie != nil {
		http.SetCookie(w, a.cookie)
		w.Header().Set("Referrer-Policy", "no-referrer")
		go302(w, http.StatusFound, local(r.URL))
		return
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	on := &call{to: x, cancel: cancel}
	if x.Asleep {
		on.late = time.Now().Add(h.fresh)
	} else if !x.Started.IsZero() {
		on.late = x.Started.Add(h.fresh)
	}
	defer func() {
		if on.stop != nil {
			on.stop()
		}
	}()
	h.proxy.ServeHTTP(w, r.WithContext(context.WithValue(ctx, callKey{}, on)))
}

func clip(s string) string {
	if len(s) > 100 {
		return s[:100]
	}
	return s
}

// portOf gives :PORT of a Host header that has one.
func portOf(host string) string {
	if _, p, err := net.SplitHostPort(host); err == nil {
		if n, err := strconv.ParseUint(p, 10, 16); err == nil {
			return ":" + strconv.FormatUint(n, 10)
		}
	}
	return ""
}

// local gives path and query, such that no browser takes it for another host.
func local(u *url.URL) string {
	p := "/" + strings.TrimLeft(u.EscapedPath(), `/\`)
	if u.RawQuery != "" {
		p += "?" + u.RawQuery
	}
	return p
}

func go302(w http.ResponseWriter, status int, to string) {
	w.Header().Set("Location", to)
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(status)
}

// forwarded are what proxies say about a request: nobody before this one is believed.
var forwarded = []string{"Forwarded", "X-Forwarded-For", "X-Forwarded-Host", "X-Forwarded-Proto", "X-Forwarded-Port", "X-Forwarded-Server", "X-Forwarded-Prefix", "X-Real-Ip"}

// rewrite makes the request that the sandbox gets: the same, with the same Host.
func rewrite(p *httputil.ProxyRequest) {
	on := p.In.Context().Value(callKey{}).(*call)
	p.Out.URL.Scheme = "http"
	p.Out.URL.Host = net.JoinHostPort(on.to.Sandbox, strconv.Itoa(on.to.Port))
	p.Out.URL.RawQuery = p.In.URL.RawQuery // as it came, be it well-formed or not
	p.Out.Host = p.In.Host
	for name := range p.Out.Header {
		if strings.Contains(name, "_") && strings.HasPrefix(strings.ReplaceAll(strings.ToLower(name), "_", "-"), "x-forwarded-") {
			delete(p.Out.Header, name) // many servers take it for the one with dashes
		}
	}
	for _, name := range forwarded {
		p.Out.Header.Del(name)
	}
	p.SetXForwarded()
	if strings.EqualFold(p.Out.Header.Get("Upgrade"), "h2c") { // requests in it would go past all this
		p.Out.Header.Del("Upgrade")
		p.Out.Header.Del("Connection")
	}
	p.Out.Header.Del("Http2-Settings")
	if _, ok := p.In.Header["User-Agent"]; !ok {
		p.Out.Header["User-Agent"] = nil // none of this program's own
	}
}

// dial connects to the sandbox, waking it. A server that is started with its sandbox
// is waited for.
func (h *Handler) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	on := ctx.Value(callKey{}).(*call)
	ctx, cancel := context.WithTimeout(ctx, h.opt.Wait)
	defer cancel()
	for pause := 10 * time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		conn, err := h.opt.Engine.DialPort(ctx, on.to.Sandbox, on.to.Port)
		if err == nil || bailey.CodeOf(err) != bailey.CodePortClosed || time.Now().After(on.late) {
			return conn, err
		}
		select {
		case <-ctx.Done():
			return nil, err
		case <-time.After(pause):
		}
	}
}

// confine sees to it that an answer is valid for its host alone, and that a stream
// without an end is broken at the daemon's end.
func (h *Handler) confine(resp *http.Response) error {
	on := resp.Request.Context().Value(callKey{}).(*call)
	set(resp.Header, "Set-Cookie", hostOnly(resp.Header["Set-Cookie"]))
	// It would delete the cookies of all hosts of the domain.
	resp.Header.Del("Clear-Site-Data")
	media, _, _ := strings.Cut(resp.Header.Get("Content-Type"), ";")
	if resp.StatusCode == http.StatusSwitchingProtocols || strings.EqualFold(strings.TrimSpace(media), "text/event-stream") {
		on.stop = context.AfterFunc(h.closing, on.cancel)
	}
	return nil
}

// hostOnly leaves out of cookies for which hosts they are, and all of those that have
// the name of this package's own.
func hostOnly(lines []string) (kept []string) {
	for _, line := range lines {
		parts := strings.Split(line, ";")
		name, _, _ := strings.Cut(parts[0], "=")
		if strings.EqualFold(strings.TrimSpace(name), cookieName) {
			continue
		}
		out := parts[:1]
		for _, attribute := range parts[1:] {
			if a, _, _ := strings.Cut(attribute, "="); !strings.EqualFold(strings.TrimSpace(a), "Domain") {
				out = append(out, attribute)
			}
		}
		kept = append(kept, strings.Join(out, ";"))
	}
	return kept
}

// failed answers a request that could not be led to its sandbox.
func (h *Handler) failed(w http.ResponseWriter, r *http.Request, err error) {
	on := r.Context().Value(callKey{}).(*call)
	var own *bailey.Error
	switch {
	case r.Context().Err() != nil:
		w.WriteHeader(http.StatusBadGateway) // whoever asked has gone
		return
	case errors.Is(err, context.DeadlineExceeded):
		answer(w, r, http.StatusGatewayTimeout, bailey.Errorf(bailey.CodeBusy, "reach the sandbox "+on.to.Sandbox, "try again", "it did not wake within %s", h.opt.Wait))
		return
	case !errors.As(err, &own):
		h.opt.Log.Debug("a sandbox does not answer as it should", "sandbox", on.to.Sandbox, "port", on.to.Port, "error", err)
		answer(w, r, http.StatusBadGateway, bailey.Errorf(bailey.CodeProtocol, fmt.Sprintf("understand port %d of the sandbox %s", on.to.Port, on.to.Sandbox),
			"see what the server in it says", "its server does not speak HTTP, or ended before it had answered"))
		return
	}
	answer(w, r, 0, err)
}
