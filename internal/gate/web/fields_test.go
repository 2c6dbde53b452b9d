package web_test

import "testing"

// TestOddNamesOfFields: what is taken out is taken out however its name is spelt,
// for servers that read all signs in it as one.
func TestOddNamesOfFields(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorld(t, allowOK)
		s := w.site("ok.test:443", !h2, nil)
		out := []string{
			"X_Http_Method_Override", "X.Http.Method.Override", "X!Http!Method!Override", "X-Http~Method-Override", "X^Original^Url",
			"X_Forwarded_Host", "X.Forwarded.For", "X|Api|Key", "Transfer!Encoding", "Content_Length", "Content.Type", "Proxy_Authorization",
		}
		in := []string{"X_Own", "X.Own", "X!Http!Own"}
		var header []string
		for _, name := range append(out, in...) {
			header = append(header, name, "1")
		}
		w.do(w.client(h2), "GET", "https://ok.test/", nil, header...)
		s.mu.Lock()
		for _, r := range s.requests {
			for i, names := range [][]string{out, in} {
				for _, name := range names {
					if got := r.Header.Get(name); (got == "1") != (i == 1) {
						t.Errorf("h2 %v: %s reached the server as %q", h2, name, got)
					}
				}
			}
		}
		if len(s.requests) != 1 {
			t.Errorf("%d requests", len(s.requests))
		}
		s.mu.Unlock()
	}
}
