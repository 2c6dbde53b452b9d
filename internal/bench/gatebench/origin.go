package gatebench

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"io"
	"log"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
)

// originConfig is what the server is told, and originBegun what it tells.
type (
	originConfig struct {
		Certificates certificates
		Secret       string // without it modelHost answers 401
	}
	originBegun struct{ Plain, TLS int } // ports of 127.0.0.1
)

// answerSize is how many bytes an answer has: as many as one of a small API.
const answerSize = 1024

var (
	answer = bytes.Repeat([]byte("{\"ok\": 1}, \r\n    "), answerSize/16)
	piece  = sync.OnceValue(func() []byte { return bytes.Repeat([]byte("0123456789abcdef"), 16<<10) })
)

func serveOrigin(in *json.Decoder) (any, error) {
	var c originConfig
	if err := in.Decode(&c); err != nil {
		return nil, err
	}
	pair, err := c.Certificates.pair()
	if err != nil {
		return nil, err
	}
	s := &http.Server{
		Handler:   http.HandlerFunc(c.answer),
		TLSConfig: &tls.Config{Certificates: []tls.Certificate{pair}, NextProtos: []string{"h2", "http/1.1"}},
		ErrorLog:  log.New(io.Discard, "", 0),
	}
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

// loopback listens at a port that the kernel chooses.
func loopback(port *int) (net.Listener, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err == nil {
		*port = l.Addr().(*net.TCPAddr).Port
	}
	return l, err
}

// answer answers a small request, or one for many bytes.
func (c *originConfig) answer(w http.ResponseWriter, r *http.Request) {
	if strings.HasPrefix(r.Host, modelHost) && r.Header.Get("Authorization") != "Bearer "+c.Secret {
		http.Error(w, "who are you?", http.StatusUnauthorized)
		return
	}
	n, err := strconv.ParseInt(r.FormValue("bytes"), 10, 64)
	if err != nil {
		w.Header().Set("Content-Type", "application/json")
		w.Header().Set("Content-Length", strconv.Itoa(len(answer)))
		w.Write(answer)
		return
	}
	w.Header().Set("Content-Type", "application/octet-stream")
	w.Header().Set("Content-Length", strconv.FormatInt(n, 10))
	for n > 0 {
		k, err := w.Write(piece()[:min(n, int64(len(piece())))])
		if err != nil {
			return
		}
		n -= int64(k)
	}
}
