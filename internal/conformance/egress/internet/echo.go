package internet

import (
	"bytes"
	"compress/gzip"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"slices"
	"strings"

	"github.com/andybalholm/brotli"
)

// Encodings are the ways in which /echo?enc= can say back what it heard.
var Encodings = []string{"plain", "json", "gzip", "br", "base64", "base64-1", "base64-2", "hex", "percent", "header", "trailer", "location", "error", "chunks", "reversed"}

// echo says a request's headers, query and body back.
func echo(rw http.ResponseWriter, r *http.Request) {
	body, err := io.ReadAll(r.Body)
	if err != nil {
		return
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s\n", r.Method, r.RequestURI)
	for _, name := range slices.Sorted(func(yield func(string) bool) {
		for n := range r.Header {
			if !yield(n) {
				return
			}
		}
	}) {
		fmt.Fprintf(&b, "%s: %s\n", name, strings.Join(r.Header[name], ", "))
	}
	b.Write(body)
	heard := b.String()
	credential := r.Header.Get("Authorization")
	var out bytes.Buffer
	switch r.URL.Query().Get("enc") {
	case "json":
		rw.Header().Set("Content-Type", "application/json")
		json.NewEncoder(&out).Encode(map[string]string{"heard": heard})
	case "gzip":
		rw.Header().Set("Content-Encoding", "gzip")
		z := gzip.NewWriter(&out)
		io.WriteString(z, heard)
		z.Close()
	case "br":
		rw.Header().Set("Content-Encoding", "br")
		z := brotli.NewWriter(&out)
		io.WriteString(z, heard)
		z.Close()
	case "base64", "base64-1", "base64-2":
		pad := map[string]string{"base64": "", "base64-1": "x", "base64-2": "xy"}[r.URL.Query().Get("enc")]
		out.WriteString(base64.StdEncoding.EncodeToString([]byte(pad + credential + " " + heard)))
	case "hex":
		out.WriteString(hex.EncodeToString([]byte(heard)))
	case "percent":
		out.WriteString(url.QueryEscape(heard))
	case "header":
		rw.Header().Set("X-Heard", credential)
		rw.Header().Set("Set-Cookie", "heard="+strings.ReplaceAll(credential, " ", "_"))
	case "trailer":
		rw.Header().Set("Trailer", "X-Heard")
		io.WriteString(rw, "see below\n")
		rw.Header().Set("X-Heard", credential)
		return
	case "location":
		rw.Header().Set("Location", "/echo?heard="+url.QueryEscape(credential))
		rw.WriteHeader(http.StatusFound)
		return
	case "error":
		rw.WriteHeader(http.StatusInternalServerError)
		out.WriteString("failed for " + heard)
	case "chunks":
		for i := range len(heard) {
			io.WriteString(rw, heard[i:i+1])
			http.NewResponseController(rw).Flush()
		}
		return
	case "reversed":
		back := []byte(heard)
		slices.Reverse(back)
		out.Write(back)
	default:
		out.WriteString(heard)
	}
	rw.Write(out.Bytes())
}

// bomb is 1 GiB of zeros in 1 MiB.
func bomb(rw http.ResponseWriter) {
	rw.Header().Set("Content-Encoding", "gzip")
	z := gzip.NewWriter(rw)
	io.CopyN(z, zeros{}, 1<<30)
	z.Close()
}
