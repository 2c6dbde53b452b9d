package inject

import (
	"bytes"
	"io"
	"net/http"
	"strings"
	"testing"
)

// TestGuardPassesBeginnings: a message that ends like the beginning of a placeholder
// arrives whole though nothing follows, and a placeholder in pieces never does.
func TestGuardPassesBeginnings(t *testing.T) {
	const secret = "sk-0123456789abcdefghijklmnopqrstuvwxyzABCDEF"
	s := newScanner(map[string]string{"name": secret}, "mark")
	for _, cut := range []int{1, 3, beginning} {
		in, out := io.Pipe()
		g := s.guard(in, &http.Request{}, nil)
		message := "a message " + secret[:cut]
		go io.WriteString(out, message)
		got := make([]byte, len(message))
		if _, err := io.ReadFull(g, got); err != nil || string(got) != message {
			t.Errorf("%d bytes: %q, %v", cut, got, err)
		}
		go func() {
			io.WriteString(out, " is no placeholder; this is one: "+secret+" and more")
			out.Close()
		}()
		rest, err := io.ReadAll(g)
		if err == nil || !strings.HasPrefix(string(rest), " is no placeholder; this is one: ") || bytes.Contains(rest, []byte(secret[:beginning+1])) {
			t.Errorf("%d bytes: then %q, %v", cut, rest, err)
		}
	}
	// Byte by byte, with and without the placeholder's last one.
	for _, whole := range []bool{false, true} {
		text := "before " + secret[:len(secret)-1]
		if whole {
			text = "before " + secret + " after"
		}
		g := s.guard(io.NopCloser(&oneByOne{text}), &http.Request{}, nil)
		got, err := io.ReadAll(g)
		if whole == (err == nil) || !whole && string(got) != text || whole && len(got) > len("before ")+beginning {
			t.Errorf("whole %v: %q, %v", whole, got, err)
		}
	}
}

type oneByOne struct{ text string }

func (o *oneByOne) Read(p []byte) (int, error) {
	if o.text == "" {
		return 0, io.EOF
	}
	p[0], o.text = o.text[0], o.text[1:]
	return 1, nil
}
