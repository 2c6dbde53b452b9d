package web_test

import (
	"context"
	"crypto/tls"
	"io"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"testing"
)

// benchmark measures a client's requests through what dial leads to.
func benchmark(b *testing.B, w *world, h2 bool, url string, dial func(addr string) net.Conn) {
	tr := &http.Transport{
		ForceAttemptHTTP2: h2, DisableCompression: true, MaxIdleConnsPerHost: 64,
		DialContext:     func(_ context.Context, _, addr string) (net.Conn, error) { return dial(addr), nil },
		TLSClientConfig: &tls.Config{RootCAs: w.trust()},
	}
	defer tr.CloseIdleConnections()
	c := &http.Client{Transport: tr}
	b.ReportAllocs()
	b.SetParallelism(8)
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			resp, err := c.Get(url)
			if err != nil {
				b.Error(err)
				return
			}
			if n, _ := io.Copy(io.Discard, resp.Body); resp.StatusCode != 200 || n == 0 {
				b.Error(resp.StatusCode)
				return
			}
			resp.Body.Close()
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "req/s")
}

func benchWorld(b *testing.B, authority string, h2 bool) *world {
	w := newWorld(b, allowOK)
	w.log.quiet = true
	w.site(authority, !h2, nil)
	return w
}

func BenchmarkTerminatedH1(b *testing.B) {
	w := benchWorld(b, "ok.test:443", false)
	benchmark(b, w, false, "https://ok.test/a", w.connect)
}

func BenchmarkTerminatedH2(b *testing.B) {
	w := benchWorld(b, "ok.test:443", true)
	benchmark(b, w, true, "https://ok.test/a", w.connect)
}

func BenchmarkPlain(b *testing.B) {
	w := benchWorld(b, "ok.test:80", false)
	benchmark(b, w, false, "http://ok.test/a", w.connect)
}

// reverseProxy starts Go's own proxy in front of a site and gives a dial to it.
func reverseProxy(b *testing.B, w *world, authority string, h2 bool) func(string) net.Conn {
	l := listen(b)
	host := authority[:len(authority)-4]
	target := &url.URL{Scheme: "https", Host: authority}
	if authority[len(authority)-3:] == ":80" {
		host, target.Scheme = authority[:len(authority)-3], "http"
	}
	p := httputil.NewSingleHostReverseProxy(target)
	p.Transport = &http.Transport{
		ForceAttemptHTTP2: h2, DisableCompression: true, MaxIdleConnsPerHost: 64,
		DialContext: func(context.Context, string, string) (net.Conn, error) {
			return net.Dial("tcp", w.sites[authority])
		},
		TLSClientConfig: &tls.Config{RootCAs: w.internet(), ServerName: host},
	}
	srv := &http.Server{Handler: p}
	if target.Scheme == "http" {
		go srv.Serve(l)
	} else {
		h := to(b, authority).Host()
		cert, err := w.sandbox.Leaf(h)
		if err != nil {
			b.Fatal(err)
		}
		srv.TLSConfig = &tls.Config{Certificates: []tls.Certificate{*cert}}
		go srv.ServeTLS(l, "", "")
	}
	b.Cleanup(func() { srv.Close() })
	return func(string) net.Conn {
		c, err := net.Dial("tcp", l.Addr().String())
		if err != nil {
			b.Fatal(err)
		}
		return c
	}
}

func BenchmarkReverseProxyH1(b *testing.B) {
	w := benchWorld(b, "ok.test:443", false)
	benchmark(b, w, false, "https://ok.test/a", reverseProxy(b, w, "ok.test:443", false))
}

func BenchmarkReverseProxyH2(b *testing.B) {
	w := benchWorld(b, "ok.test:443", true)
	benchmark(b, w, true, "https://ok.test/a", reverseProxy(b, w, "ok.test:443", true))
}

func BenchmarkReverseProxyPlain(b *testing.B) {
	w := benchWorld(b, "ok.test:80", false)
	benchmark(b, w, false, "http://ok.test/a", reverseProxy(b, w, "ok.test:80", false))
}
