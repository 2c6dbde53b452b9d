package gatebench

import (
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"strconv"
	"strings"
)

// reverseConfig is what Go's reverse proxy is told. It speaks for the server of
// the bench with that server's certificate.
type reverseConfig struct {
	Certificates certificates
	Secret       string
	Origin       originBegun
}

func serveReverse(in *json.Decoder) (any, error) {
	var c reverseConfig
	if err := in.Decode(&c); err != nil {
		return nil, err
	}
	pair, err := c.Certificates.pair()
	if err != nil {
		return nil, err
	}
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(c.Certificates.Authority)
	silent := log.New(io.Discard, "", 0)
	p := &httputil.ReverseProxy{
		Rewrite: func(r *httputil.ProxyRequest) {
			u := r.Out.URL
			if u.Scheme, u.Host = "https", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Origin.TLS)); r.In.TLS == nil {
				u.Scheme, u.Host = "http", net.JoinHostPort("127.0.0.1", strconv.Itoa(c.Origin.Plain))
			}
			r.Out.Host = r.In.Host
			if strings.HasPrefix(r.In.Host, modelHost) {
				r.Out.Header.Set("Authorization", "Bearer "+c.Secret)
			}
		},
		Transport: &http.Transport{
			ForceAttemptHTTP2: true, DisableCompression: true, MaxIdleConnsPerHost: 256,
			TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: apiHost},
		},
		ErrorLog: silent,
	}
	s := &http.Server{Handler: p, ErrorLog: silent, TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}}}
	var begun originBegun
	plain, err := loopback(&begun.Plain)
	if err != nil {
		return nil, err
	}
	secure, err := loopback(&begun.TLS)
	if err != nil {
		return nil, err
	}
	go s.Serve(plain)
	go s.ServeTLS(secure, "", "")
	return begun, nil
}
