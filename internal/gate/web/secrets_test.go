package web_test

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/gate/act"
	"github.com/bailey-sandbox/bailey/policy"
)

const secretValue = "s3cr3t-value-of-a-test"

// fakeSecrets puts a value in for PLACEHOLDER and refuses FOREIGN.
type fakeSecrets struct{}

func (f *fakeSecrets) orNil() act.Secrets {
	if f == nil {
		return nil
	}
	return f
}

func (f *fakeSecrets) Request(_ context.Context, r *http.Request, _ policy.Request, _ *policy.Rule) ([]string, error) {
	v := r.Header.Get("Authorization")
	if strings.Contains(v, "FOREIGN") {
		return nil, &act.Refused{Reason: "foreign_credential", Why: "another credential"}
	}
	if !strings.Contains(v, "PLACEHOLDER") {
		return nil, nil
	}
	r.Header.Set("Authorization", strings.ReplaceAll(v, "PLACEHOLDER", secretValue))
	if r.Body != nil {
		b, err := io.ReadAll(r.Body)
		if err != nil {
			return nil, err
		}
		b = bytes.ReplaceAll(b, []byte("PLACEHOLDER"), []byte(secretValue))
		r.Body, r.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	}
	return []string{"token"}, nil
}

func (f *fakeSecrets) Response(resp *http.Response, found func(int)) error {
	if resp.StatusCode == http.StatusSwitchingProtocols {
		return nil
	}
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		return err
	}
	if n := bytes.Count(b, []byte(secretValue)); n > 0 {
		found(n)
		b = bytes.ReplaceAll(b, []byte(secretValue), []byte("[scrubbed]"))
	}
	resp.Body, resp.ContentLength = io.NopCloser(bytes.NewReader(b)), int64(len(b))
	return nil
}

func (f *fakeSecrets) Outgoing(text []byte, _ policy.Request, _ *policy.Rule) ([]byte, error) {
	if bytes.Contains(text, []byte("FOREIGN")) {
		return nil, &act.Refused{Reason: "foreign_credential", Why: "another credential"}
	}
	return bytes.ReplaceAll(text, []byte("PLACEHOLDER"), []byte(secretValue)), nil
}

func (f *fakeSecrets) Incoming(text []byte, found func(int)) []byte {
	if n := bytes.Count(text, []byte(secretValue)); n > 0 {
		found(n)
	}
	return bytes.ReplaceAll(text, []byte(secretValue), []byte("[scrubbed]"))
}

func (f *fakeSecrets) Opaque() func([]byte) error { return func([]byte) error { return nil } }
func (f *fakeSecrets) Clean(s string) string {
	return strings.ReplaceAll(s, "PLACEHOLDER", "[placeholder]")
}

// TestSecrets: a value is put in after policy has decided, taken out of the
// answer, and named in the record; a refusal is a denial.
func TestSecrets(t *testing.T) {
	for _, h2 := range []bool{false, true} {
		w := newWorldWith(t, allowOK, &fakeSecrets{})
		s := w.site("ok.test:443", !h2, func(rw http.ResponseWriter, r *http.Request) {
			io.WriteString(rw, r.Header.Get("Authorization"))
		})
		c := w.client(h2)
		_, body := w.do(c, "POST", "https://ok.test/PLACEHOLDER?PLACEHOLDER=1", strings.NewReader(`{"a":"PLACEHOLDER"}`), "Authorization", "Bearer PLACEHOLDER")
		if body != "Bearer [scrubbed]" || s.last().Header.Get("Authorization") != "Bearer "+secretValue {
			t.Errorf("%q", body)
		}
		if b, _ := io.ReadAll(s.last().Body); string(b) != `{"a":"`+secretValue+`"}` {
			t.Errorf("%q", b)
		}
		rec := w.log.acts()[0]
		if o := w.log.ended(t, rec.Seq); o.Scrubbed != 1 || len(rec.Egress.Secrets) != 1 || rec.Egress.Path != "/[placeholder]" || rec.Egress.Query[0] != "[placeholder]" {
			t.Errorf("%+v %+v", rec.Egress, o)
		}
		resp, body := w.do(c, "GET", "https://ok.test/", nil, "Authorization", "Bearer FOREIGN")
		if resp.StatusCode != 403 || denial(t, body).Reason != "foreign_credential" || s.seen() != 1 {
			t.Errorf("%d %s", resp.StatusCode, body)
		}
	}
}
