package access_test

import (
	"context"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// clock is set by tests.
type clock struct{ now time.Time }

func (c *clock) Now() time.Time { return c.now }

func openKeys(t *testing.T, opt access.KeyOptions) (*access.Keys, *state.DB) {
	t.Helper()
	db, err := state.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return access.NewKeys(db, opt), db
}

func TestKeys(t *testing.T) {
	c := &clock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	keys, _ := openKeys(t, access.KeyOptions{Now: c.Now, All: api.Quota{Sandboxes: 100}, Each: api.Quota{Sandboxes: 10}})
	ctx := t.Context()
	for _, bad := range []api.KeySpec{
		{Name: "a"}, {Name: "", Scopes: []string{"read"}}, {Name: "a/b", Scopes: []string{"read"}}, {Name: "a", Scopes: []string{"root"}},
		{Name: "a", Scopes: []string{"read"}, Rate: -1}, {Name: "a", Scopes: []string{"read"}, Quota: api.Quota{Disk: -1}},
	} {
		if _, err := keys.Create(ctx, bad); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	k, err := keys.Create(ctx, api.KeySpec{Name: "ci", Scopes: []string{"write", "read", "read"}, Lifetime: api.Lifetime{After: api.Duration(time.Hour)}, Quota: api.Quota{Sandboxes: 3}})
	if err != nil || !strings.HasPrefix(k.Token, access.Prefix) || len(k.Token) < 40 || !slices.Equal(k.Scopes, []string{"read", "write"}) {
		t.Fatalf("%v %+v", err, k)
	}
	if _, err := keys.Create(ctx, api.KeySpec{Name: "ci", Scopes: []string{"read"}}); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Errorf("the same name again: %v", err)
	}
	id, _, err := keys.Identify(ctx, k.Token)
	if err != nil || id.Name != "key:ci" || id.Admin || id.Local || id.Needs(access.Write, "x") != nil || bailey.CodeOf(id.Needs(access.Exec, "x")) != bailey.CodeForbidden {
		t.Errorf("%v %+v", err, id)
	}
	for owner, n := range map[string]int{"": 100, "key:ci": 3, "key:other": 10, "uid:0": 10} {
		if q := keys.Quota(owner); q.Sandboxes != n {
			t.Errorf("the quota of %q is %+v", owner, q)
		}
	}
	for _, token := range []string{"", "bailey_", k.Token + "x", k.Token[:len(k.Token)-1], strings.ToUpper(k.Token), strings.TrimPrefix(k.Token, access.Prefix)} {
		if _, _, err := keys.Identify(ctx, token); bailey.CodeOf(err) != bailey.CodeUnauthorized {
			t.Errorf("the token %q: %v", token, err)
		}
	}
	if list, err := keys.List(ctx); err != nil || len(list) != 1 || list[0].Token != "" {
		t.Errorf("the list has %+v (%v)", list, err)
	}
}

func TestTokensAreNotKept(t *testing.T) {
	home := t.TempDir()
	db, err := state.Open(t.Context(), home)
	if err != nil {
		t.Fatal(err)
	}
	k, err := access.NewKeys(db, access.KeyOptions{}).Create(t.Context(), api.KeySpec{Name: "a", Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	db.Close()
	files, err := filepath.Glob(home + "/*")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	for _, f := range files {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if strings.Contains(string(b), strings.TrimPrefix(k.Token, access.Prefix)) {
			t.Errorf("%s has the token", f)
		}
	}
}

func TestKeysEnd(t *testing.T) {
	c := &clock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	keys, _ := openKeys(t, access.KeyOptions{Now: c.Now})
	k, err := keys.Create(t.Context(), api.KeySpec{Name: "a", Scopes: []string{"admin"}, Lifetime: api.Lifetime{After: api.Duration(time.Hour)}})
	if err != nil {
		t.Fatal(err)
	}
	c.now = c.now.Add(time.Hour - time.Second)
	if id, _, err := keys.Identify(t.Context(), k.Token); err != nil || !id.Admin || id.Local {
		t.Errorf("before its end: %v %+v", err, id)
	}
	c.now = c.now.Add(time.Second)
	if _, _, err := keys.Identify(t.Context(), k.Token); bailey.CodeOf(err) != bailey.CodeUnauthorized {
		t.Errorf("at its end: %v", err)
	}
	if err := keys.Delete(t.Context(), "a"); err != nil {
		t.Error(err)
	}
	if err := keys.Delete(t.Context(), "a"); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("one that is gone: %v", err)
	}
}

// guard lets requests through to a handler that tells who they are from.
func guard(keys *access.Keys) *access.Guard {
	return &access.Guard{
		Keys: keys, Hosts: []string{"localhost", "127.0.0.1", "::1", "box.test", ".ports.test"}, Origins: []string{"https://page.test"},
		Next: http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			id := access.From(r.Context())
			w.Header().Set("Who", id.Name)
			if id.Local {
				w.Header().Set("Local", "yes")
			}
		}),
		Refuse: func(w http.ResponseWriter, err error, limit int64, wait time.Duration) {
			w.Header().Set("Code", string(bailey.CodeOf(err)))
			if wait > 0 {
				w.Header().Set("Wait", wait.String())
			}
			w.WriteHeader(400)
		},
	}
}

func TestTCPNeedsAKey(t *testing.T) {
	c := &clock{time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)}
	keys, _ := openKeys(t, access.KeyOptions{Now: c.Now})
	k, err := keys.Create(t.Context(), api.KeySpec{Name: "a", Scopes: []string{"read"}, Rate: 2})
	if err != nil {
		t.Fatal(err)
	}
	g := guard(keys)
	ask := func(auth ...string) *httptest.ResponseRecorder {
		r := httptest.NewRequest("GET", "http://localhost/", nil)
		r.Header["Authorization"] = auth
		w := httptest.NewRecorder()
		g.ServeHTTP(w, r)
		return w
	}
	for _, auth := range [][]string{nil, {"Bearer bailey_x"}, {"Basic " + k.Token}, {k.Token}, {"bearer  " + k.Token}, {"Bearer " + k.Token, "Bearer x"}} {
		if w := ask(auth...); w.Header().Get("Code") != "unauthorized" {
			t.Errorf("%q: %v", auth, w.Header())
		}
	}
	for range 4 { // two seconds' worth
		if w := ask("Bearer " + k.Token); w.Header().Get("Who") != "key:a" || w.Header().Get("Local") != "" {
			t.Fatalf("with the key: %v", w.Header())
		}
	}
	if w := ask("Bearer " + k.Token); w.Header().Get("Code") != "rate_limited" || w.Header().Get("Wait") != "500ms" {
		t.Errorf("one too many: %v", w.Header())
	}
	c.now = c.now.Add(500 * time.Millisecond)
	if w := ask("Bearer " + k.Token); w.Header().Get("Who") != "key:a" {
		t.Errorf("a while later: %v", w.Header())
	}
	g.Keys = nil
	if w := ask("Bearer " + k.Token); w.Header().Get("Code") != "unauthorized" {
		t.Errorf("where there are no keys: %v", w.Header())
	}
}

func TestHostAndOrigin(t *testing.T) {
	keys, _ := openKeys(t, access.KeyOptions{})
	k, err := keys.Create(t.Context(), api.KeySpec{Name: "a", Scopes: []string{"read"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		host, origin, site string
		ok                 bool
	}{
		{"localhost", "", "", true}, {"LOCALHOST:80", "", "", true}, {"[::1]:7777", "", "", true}, {"box.test", "", "", true}, {"80-x.ports.test", "", "", true},
		{"evil.test", "", "", false}, {"", "", "", false}, {"localhost.evil.test", "", "", false}, {"ports.test", "", "", false}, {"xports.test", "", "", false},
		{"localhost", "http://localhost", "", true}, {"localhost:1", "http://localhost:1", "same-origin", true}, {"localhost", "https://page.test", "cross-site", true},
		{"localhost", "http://localhost:1", "", false}, {"localhost", "https://evil.test", "", false}, {"localhost", "null", "", false}, {"localhost", "https://page.test.evil.test", "", false},
		{"localhost", "", "cross-site", false}, {"localhost", "", "same-site", false}, {"localhost", "", "none", true},
	} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Host = c.host
		r.Header.Set("Authorization", "Bearer "+k.Token)
		if c.origin != "" {
			r.Header.Set("Origin", c.origin)
		}
		if c.site != "" {
			r.Header.Set("Sec-Fetch-Site", c.site)
		}
		w := httptest.NewRecorder()
		guard(keys).ServeHTTP(w, r)
		if ok := w.Header().Get("Who") != ""; ok != c.ok || !ok && w.Header().Get("Code") != "forbidden" {
			t.Errorf("%+v: %v", c, w.Header())
		}
	}
}

// TestPeer: on a unix socket the kernel says who asks.
func TestPeer(t *testing.T) {
	l, err := net.Listen("unix", filepath.Join(t.TempDir(), "s"))
	if err != nil {
		t.Fatal(err)
	}
	srv := &http.Server{Handler: guard(nil), ConnContext: access.ConnContext}
	ended := make(chan error)
	go func() { ended <- srv.Serve(l) }()
	defer func() {
		srv.Close()
		if err := <-ended; !errors.Is(err, http.ErrServerClosed) {
			t.Error(err)
		}
	}()
	c := &http.Client{Transport: &http.Transport{DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
		return (&net.Dialer{}).DialContext(ctx, "unix", l.Addr().String())
	}}}
	defer c.CloseIdleConnections()
	resp, err := c.Get("http://whatever/")
	if err != nil {
		t.Fatal(err)
	}
	resp.Body.Close()
	if want := "uid:" + strconv.Itoa(os.Geteuid()); resp.Header.Get("Who") != want || resp.Header.Get("Local") != "yes" {
		t.Errorf("%v, not %s", resp.Header, want)
	}
}
