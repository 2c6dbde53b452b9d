package policy

import (
	"net/netip"
	"strings"
	"testing"
)

func TestParseHost(t *testing.T) {
	label63 := strings.Repeat("a", 63)
	for in, want := range map[string]string{ // "" is an error
		// N4, N5: one name, however it is spelt.
		"example.com": "example.com", "API.Example.COM": "api.example.com", "api.example.com.": "api.example.com",
		"localhost": "localhost", "a.internal": "a.internal", "r3---sn-x.example.com": "r3---sn-x.example.com",
		// N6: other scripts. A look-alike is another name; what maps to the same is the same.
		"ex\u0430mple.com": "xn--exmple-4nf.com", "xn--exmple-4nf.com": "xn--exmple-4nf.com", "XN--EXMPLE-4NF.com": "xn--exmple-4nf.com",
		"\u24d4xample.com": "example.com", "example\uff0ecom": "example.com", "example\u3002com": "example.com", "b\u00fccher.test": "xn--bcher-kva.test",
		"B\u00dcCHER.test": "xn--bcher-kva.test", "fa\u00df.test": "xn--fa-hia.test", "exam\u00adple.com": "example.com",
		"xn--a.test": "", "xn--.test": "", "xn--example-.com": "", "xn--bcher-kva.xn--p.test": "", "\u05d0a.test": "", "\u200dx.test": "",
		// N7, N8: what protocols carry and names do not have.
		"evil.test\x00.ok.test": "", "\x00": "", "ok.test\r\nX: y": "", "ok.test\n": "", "ok .test": "", " ok.test": "", "ok.test\t": "", "\x7f.test": "",
		"\xff.test": "", "ok.test\u0000": "", "a\u2028b.test": "",
		// N9: user names, and the rest of a URL.
		"ok.test@evil.test": "", "user:pw@evil.test": "", "ok.test/": "", "ok.test#x": "", "ok.test?x": "", "ok.test\\evil.test": "", "%6fk.test": "", "*.ok.test": "",
		// N10: a port is no part of a host.
		"ok.test:443": "", "ok.test:": "",
		// N11: numbers.
		"2130706433": "", "0177.0.0.1": "", "0x7f.1": "", "0x7f000001": "", "127.1": "", "127.0.1": "", "0": "", "127.0.0.1.": "", "1.2.3.4.5": "", "256.1.1.1": "",
		"0X7F.0.0.1": "", "a.1": "", "x.0x": "", "x.0xa": "", "01.2.3.4": "", "\u2460\u2461\u2466.0.0.1": "", "\uff11\uff12\uff17.0.0.1": "", "127.0.0.1": "127.0.0.1",
		"::1": "::1", "[::1]": "::1", "[::FFFF:127.0.0.1]": "127.0.0.1", "::ffff:7f00:1": "127.0.0.1", "0:0:0:0:0:0:0:1": "::1", "fe80::1%eth0": "", "[fe80::1%25eth0]": "",
		"[127.0.0.1]": "", "[::1": "", "::1]": "", "[]": "", "[ok.test]": "", ":": "", "1::2::3": "",
		// N12: the grammar.
		"": "", ".": "", "..": "", "a..b": "", ".a": "", "a.test..": "", "-a.test": "", "a-.test": "", "a_b.test": "", "_dmarc.test": "",
		label63 + ".test": label63 + ".test", label63 + "a.test": "",
		strings.Repeat("a.", 126) + "a": strings.Repeat("a.", 126) + "a", strings.Repeat("a.", 127) + "a": "", strings.Repeat("a", 5000): "",
	} {
		h, err := ParseHost(in)
		switch {
		case want == "" && err == nil:
			t.Errorf("%q was taken as %s", in, h)
		case want != "" && (err != nil || h.String() != want):
			t.Errorf("%q: %v, %v, want %s", in, h, err, want)
		}
	}
}

func TestHostKinds(t *testing.T) {
	h, err := ParseHost("[2001:DB8::1]")
	if err != nil {
		t.Fatal(err)
	}
	if a, literal := h.Addr(); !literal || a != netip.MustParseAddr("2001:db8::1") {
		t.Errorf("%v is no literal address", a)
	}
	name, err := ParseHost("a.test")
	if err != nil {
		t.Fatal(err)
	}
	if _, literal := name.Addr(); literal || name.IsZero() || !(Host{}).IsZero() {
		t.Error("a name is a name, and the zero Host is none")
	}
	if At(h, 443).String() != "[2001:db8::1]:443" || At(name, 1).String() != "a.test:1" {
		t.Error("authorities have brackets around IPv6 alone")
	}
}

func TestParseAuthority(t *testing.T) {
	for _, c := range []struct {
		in       string
		fallback uint16
		want     string // "" is an error
	}{
		{"OK.test", 443, "ok.test:443"}, {"ok.test.:8443", 443, "ok.test:8443"}, {"ok.test", 0, ""}, {"[::1]", 80, "[::1]:80"}, {"[::1]:8080", 80, "[::1]:8080"},
		{"1.2.3.4:5", 0, "1.2.3.4:5"}, {"ok.test:65535", 0, "ok.test:65535"},
		{"ok.test:0443", 443, ""}, {"ok.test:", 443, ""}, {"ok.test:0", 443, ""}, {"ok.test:65536", 443, ""}, {"ok.test:+443", 443, ""}, {"ok.test:-1", 443, ""},
		{"ok.test: 443", 443, ""}, {"ok.test:443 ", 443, ""}, {"ok.test:4e2", 443, ""}, {"ok.test:443:443", 443, ""}, {"ok.test:\uff14\uff14\uff13", 443, ""}, {"::1", 443, ""}, {"[::1]443", 443, ""},
		{"ok.test@evil.test:443", 443, ""}, {"u:p@evil.test", 443, ""}, {":443", 443, ""}, {"", 443, ""}, {"ok.test:443/x", 443, ""}, {"[ok.test]:443", 443, ""},
		{"127.1:80", 0, ""}, {"[::1%25lo]:80", 0, ""}, {"ok.test\x00:443", 0, ""},
	} {
		a, err := ParseAuthority(c.in, c.fallback)
		switch {
		case c.want == "" && err == nil:
			t.Errorf("%q was taken as %s", c.in, a)
		case c.want != "" && (err != nil || a.String() != c.want):
			t.Errorf("%q: %v, %v, want %s", c.in, a, err, c.want)
		}
	}
}

func FuzzHost(f *testing.F) {
	for _, s := range []string{"a.test", "EX\u00c4MPLE.test.", "xn--bcher-kva.test", "[::ffff:1.2.3.4]", "0x7f.1", "a\x00b", "\u2460.test", "xn--xn---epa.test"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		h, err := ParseHost(s)
		if err != nil {
			if !h.IsZero() {
				t.Fatalf("%q: an error and the host %s", s, h)
			}
			return
		}
		again, err := ParseHost(h.String())
		if err != nil || again != h {
			t.Fatalf("%q: %s becomes %v, %v", s, h, again, err)
		}
		if _, literal := h.Addr(); literal {
			return
		}
		if !plainName(h.name) || endsInNumber(h.name) {
			t.Fatalf("%q: %q is not canonical", s, h.name)
		}
	})
}

func FuzzAuthority(f *testing.F) {
	for _, s := range []string{"a.test:443", "[::1]:80", "a.test:0443", "u@a.test", ":", "a:b:c"} {
		f.Add(s, uint16(443))
	}
	f.Fuzz(func(t *testing.T, s string, fallback uint16) {
		a, err := ParseAuthority(s, fallback)
		if err != nil {
			return
		}
		again, err := ParseAuthority(a.String(), 0)
		if err != nil || again != a || a.Port() == 0 || a.Host().IsZero() {
			t.Fatalf("%q: %s becomes %v, %v", s, a, again, err)
		}
	})
}
