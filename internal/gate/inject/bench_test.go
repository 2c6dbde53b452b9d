package inject

import (
	"io"
	"net/http"
	"strings"
	"testing"
)

// BenchmarkRequestWithoutPlaceholders is what every request of a sandbox with
// six secrets costs.
func BenchmarkRequestWithoutPlaceholders(b *testing.B) {
	k := newKit(b)
	rule := k.rule("free")
	header := http.Header{
		"User-Agent": {"pip/24.0 {\"ci\":null,\"cpu\":\"x86_64\"}"}, "Accept": {"application/vnd.pypi.simple.v1+json, text/html;q=0.01"}, "Accept-Encoding": {"gzip, deflate"},
		"Content-Type": {"application/json"}, "Connection": {"keep-alive"}, "X-Request-Id": {"0b1e7c52-1d5f-4a3c-8a6f-111111111111"},
	}
	body := `{"model":"x","messages":[` + strings.Repeat(`{"role":"user","content":"some words of a person"},`, 40) + `{}]}`
	r, err := http.NewRequest("POST", "https://free.test/v1/messages?beta=true&x=1", nil)
	if err != nil {
		b.Fatal(err)
	}
	pr := k.act(r)
	b.ReportAllocs()
	for b.Loop() {
		r := r.Clone(b.Context())
		r.Header, r.Body, r.ContentLength = header.Clone(), io.NopCloser(strings.NewReader(body)), int64(len(body))
		if _, err := k.Request(b.Context(), r, pr, rule); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkInjectHeader(b *testing.B) {
	k := newKit(b)
	rule := k.rule("bound")
	r := k.raw("GET https://api.github.test/user", "Authorization: Bearer {github}\nUser-Agent: curl/8\nAccept: */*", "")
	pr := k.act(r)
	b.ReportAllocs()
	for b.Loop() {
		if _, err := k.Request(b.Context(), r.Clone(b.Context()), pr, rule); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkScrub(b *testing.B) {
	k := newKit(b)
	for name, text := range map[string]string{
		"text": strings.Repeat("The quick brown fox jumps over the lazy dog, and says so. ", 1<<14), "base64": strings.Repeat("Z2hwX0ExYjJDM2Q0RTVmNkc3aDhJOWowSzFsMk0zbjRPNXA2UTdyOA0KZm94", 1<<14), "zeros": string(make([]byte, 1<<20)),
	} {
		b.Run(name, func(b *testing.B) {
			s := k.scrubbing()
			st := stream{m: s.m, hit: func(p *pattern) (string, bool) { return s.with(p), true }}
			b.SetBytes(int64(len(text)))
			var out []byte
			for b.Loop() {
				for i := 0; i < len(text); i += 32 << 10 {
					out = st.feed(out[:0], []byte(text[i:min(len(text), i+32<<10)]), false)
				}
			}
		})
	}
}

func BenchmarkScrubber(b *testing.B) {
	k := newKit(b)
	b.ReportAllocs()
	for b.Loop() {
		k.scrub.Store(nil)
		clear(k.issuer.searches)
		k.scrubbing()
	}
}
