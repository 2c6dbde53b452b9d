package gatebench

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"net"
	"net/http"
	"net/url"
	"strings"
)

// work is one kind of request.
type work struct {
	what         string
	scheme, host string
	h2           bool
}

func (w work) secret() bool { return w.host == modelHost }

// subject is one that is measured.
type subject struct {
	name     string
	features []string
	ours     bool // a failure is an error of the whole benchmark
	client   *http.Client
	// credential is what the client sends where the work has one.
	credential string
	url        string
	failed     error
}

// subjects gives those who can do the work, by name, each with a client of its
// own, and those that are missing.
func (b *bench) subjects(w work, names ...string) (list []*subject, err error) {
	port := b.origin.TLS
	if w.scheme == "http" {
		port = b.origin.Plain
	}
	for _, name := range names {
		s := &subject{name: name, url: w.scheme + "://" + at(w.host, port)}
		trusted := b.certs.Authority
		var dial func(ctx context.Context, network, address string) (net.Conn, error)
		var proxy func(*http.Request) (*url.URL, error)
		to := func(address string) func(context.Context, string, string) (net.Conn, error) {
			return func(ctx context.Context, network, _ string) (net.Conn, error) {
				return new(net.Dialer).DialContext(ctx, network, address)
			}
		}
		if w.secret() {
			s.credential = "none"
		}
		switch name {
		case nameDirect:
			s.ours, dial = true, to(at("127.0.0.1", port))
			s.features = []string{"nothing between client and server"}
			if w.secret() {
				s.credential = b.secret
			}
		case nameGate:
			ip, err := lookup(w.host)
			if err != nil {
				return nil, err
			}
			s.ours, dial = true, to(at(ip.String(), port))
			s.features = []string{"a process without rights, by `baileyd gate`", "a policy of 9 rules decides each request", "two audit records each, in the kernel before it goes on",
				"connections redirected by the kernel"}
			if w.secret() {
				s.credential = b.way.placeholder
				s.features = append(s.features, "the credential put in for a placeholder", "answers searched for it")
			}
			if w.host == filesHost {
				s.features = []string{"the name in the ClientHello is checked", "audit records of beginning and end", "connections redirected by the kernel"}
			} else {
				trusted = b.way.authority
			}
		case nameReverse:
			s.ours, dial = true, to(at("127.0.0.1", b.reverse.TLS))
			if w.scheme == "http" {
				dial = to(at("127.0.0.1", b.reverse.Plain))
			}
			s.features = []string{"httputil.ReverseProxy of this Go, TLS on both sides", "no policy, no log, the certificate of the server itself"}
		case nameMitm:
			if b.mitm == nil {
				continue
			}
			proxy = http.ProxyURL(&url.URL{Scheme: "http", Host: at("127.0.0.1", b.mitm.port)})
			trusted = b.mitm.authority
			s.features = []string{"mitmdump, mode regular, an authority of its own", "no policy, no log", "large bodies are streamed"}
			if w.secret() {
				s.features = append(s.features, "the credential set by --modify-headers")
			}
		case nameNginx:
			if b.nginx == nil {
				continue
			}
			dial = to(at("127.0.0.1", b.nginx.port))
			s.features = []string{"stream with ssl_preread and a map of names, one process, its default sizes", "no log"}
		}
		roots := x509.NewCertPool()
		roots.AppendCertsFromPEM(trusted)
		tr := &http.Transport{
			Proxy: proxy, DialContext: dial, DisableCompression: true, MaxIdleConnsPerHost: 2 * b.opt.Workers,
			TLSClientConfig: &tls.Config{RootCAs: roots}, ForceAttemptHTTP2: w.h2,
			ReadBufferSize: 64 << 10,
		}
		if !w.h2 {
			tr.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
		}
		s.client = &http.Client{Transport: tr}
		list = append(list, s)
	}
	return list, nil
}

// close ends the connections of a subject's client.
func (s *subject) close() { s.client.CloseIdleConnections() }

// one makes one small request.
func (s *subject) one(ctx context.Context) error {
	return get(ctx, s.client, s.url+answerPath, s.credential, int64(len(answer)))
}

// why is the short reason for which a subject of others left.
func (s *subject) why() string {
	first, _, _ := strings.Cut(s.failed.Error(), "\n")
	return first
}
