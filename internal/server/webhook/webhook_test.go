package webhook_test

import (
	"context"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/standin"
	"github.com/bailey-sandbox/bailey/internal/server/webhook"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

var owner = engine.Caller{Name: "uid:1", Admin: true}

// delivery is what a receiver got.
type delivery struct {
	event     api.Event
	signature string
	body      []byte
}

// receiver takes deliveries, and refuses as often as it is told.
func receiver(t *testing.T) (url string, got chan delivery, refuse *atomic.Int32) {
	got, refuse = make(chan delivery, 100), &atomic.Int32{}
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(r.Body)
		d := delivery{signature: r.Header.Get(webhook.HeaderSignature), body: body}
		if err == nil {
			err = json.Unmarshal(body, &d.event)
		}
		if err != nil || r.Method != "POST" || r.Header.Get(webhook.HeaderEvent) != fmt.Sprint(d.event.Seq) {
			t.Errorf("%v %s %v", err, r.Method, r.Header)
		}
		if refuse.Load() > 0 {
			refuse.Add(-1)
			w.WriteHeader(503)
			return
		}
		got <- d
	}))
	t.Cleanup(s.Close)
	return s.URL, got, refuse
}

// run starts a sender; stop ends it.
func run(t *testing.T, db *state.DB, e *standin.Engine, pause func(int) time.Duration) (s *webhook.Sender, stop func()) {
	t.Helper()
	s = webhook.New(webhook.Options{DB: db, Source: e, Allow: []netip.Prefix{netip.MustParsePrefix("127.0.0.0/8")}, Pause: pause})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if !stopped {
			stopped = true
			cancel()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}
	}
	t.Cleanup(stop)
	return s, stop
}

func open(t *testing.T) *state.DB {
	t.Helper()
	db, err := state.Open(t.Context(), t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

func create(t *testing.T, e *standin.Engine) string {
	t.Helper()
	b, err := e.Create(t.Context(), owner, api.SandboxSpec{})
	if err != nil {
		t.Fatal(err)
	}
	return b.ID
}

// TestDelivery: signed, of the kinds asked for, again when refused, in order; and
// after a restart from where it stopped.
func TestDelivery(t *testing.T) {
	db, e := open(t), standin.New()
	url, got, refuse := receiver(t)
	s, stop := run(t, db, e, func(int) time.Duration { return time.Millisecond })
	w, err := s.Create(t.Context(), "uid:1", api.WebhookSpec{URL: url, Kinds: []string{"sandbox.paused", "sandbox.ended"}})
	if err != nil || w.Secret == "" {
		t.Fatal(err, w)
	}
	key, err := base64.StdEncoding.DecodeString(w.Secret)
	if err != nil {
		t.Fatal(err)
	}
	refuse.Store(2)
	id := create(t, e) // not asked for
	e.Pause(t.Context(), owner, id, api.PauseRequest{})
	e.Delete(t.Context(), owner, id)
	var last int64
	for _, kind := range []string{"sandbox.paused", "sandbox.ended"} {
		d := <-got
		last = d.event.Seq
		var at int64
		if _, err := fmt.Sscanf(d.signature, "t=%d,", &at); err != nil || d.event.Kind != kind || d.event.Sandbox != id || d.signature != webhook.Sign(key, time.Unix(at, 0), d.body) {
			t.Errorf("%v: %+v, signature %s", err, d.event, d.signature)
		}
	}
	stop()
	id = create(t, e)
	e.Delete(t.Context(), owner, id)
	s, stop = run(t, db, e, func(int) time.Duration { return time.Millisecond })
	d := <-got
	if d.event.Seq == last {
		d = <-got // at least once: the sender was stopped before it had read the answer
	}
	if d.event.Kind != "sandbox.ended" || d.event.Sandbox != id {
		t.Errorf("after the restart: %+v", d.event)
	}
	if err := s.Delete(t.Context(), w.ID); err != nil {
		t.Error(err)
	}
	if err := s.Delete(t.Context(), w.ID); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("one that is gone: %v", err)
	}
	e.Delete(t.Context(), owner, create(t, e))
	stop()
	if len(got) > 0 {
		t.Errorf("a deleted webhook was told %+v", (<-got).event)
	}
}

// TestGivenUp: an event that nobody takes does not hold the next one up for ever.
func TestGivenUp(t *testing.T) {
	db, e := open(t), standin.New()
	url, got, refuse := receiver(t)
	s, _ := run(t, db, e, func(tries int) time.Duration {
		if tries == 3 {
			return -1
		}
		return time.Millisecond
	})
	if _, err := s.Create(t.Context(), "uid:1", api.WebhookSpec{URL: url}); err != nil {
		t.Fatal(err)
	}
	refuse.Store(3)
	create(t, e)
	id := create(t, e)
	if d := <-got; d.event.Sandbox != id {
		t.Errorf("told was %+v", d.event)
	}
	if list, err := s.List(t.Context()); err != nil || list[0].Failed != 1 || list[0].Secret != "" {
		t.Errorf("%v %+v", err, list)
	}
}

// TestMadeAtStart: a webhook that is made while the sender starts is told, once.
func TestMadeAtStart(t *testing.T) {
	for range 50 {
		db, e := open(t), standin.New()
		url, got, _ := receiver(t)
		s, stop := run(t, db, e, func(int) time.Duration { return time.Millisecond })
		if _, err := s.Create(t.Context(), "uid:1", api.WebhookSpec{URL: url}); err != nil {
			t.Fatal(err)
		}
		create(t, e)
		select {
		case <-got:
		case <-time.After(20 * time.Second):
			t.Fatal("it was not told")
		}
		stop()
		if len(got) > 0 {
			t.Fatal("it was told twice")
		}
		db.Close()
	}
}

// TestTargets: no webhook reaches the host, its network or a cloud's metadata.
func TestTargets(t *testing.T) {
	s := webhook.New(webhook.Options{DB: open(t), Source: standin.New()})
	for _, url := range []string{
		"http://example.com/", "https://127.0.0.1/", "https://[::1]/", "https://169.254.169.254/latest/meta-data", "https://10.0.0.1/", "https://192.168.1.1/", "https://172.16.0.1",
		"https://100.64.0.1/", "https://[fd00::1]/", "https://[fe80::1%25eth0]/", "https://[::ffff:127.0.0.1]/", "https://0.0.0.0/", "https://[::]/", "https://224.0.0.1/",
		"https://[64:ff9b::7f00:1]/", "https://user:pw@example.com/", "ftp://example.com/", "https://", "x", "https://example.com/#f", "https://example.com/" + strings.Repeat("x", 3000),
	} {
		if w, err := s.Create(t.Context(), "uid:1", api.WebhookSpec{URL: url}); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%s: %v %+v", url, err, w)
		}
	}
	for _, kinds := range [][]string{{"a b"}, {""}, {"*.x"}, slices.Repeat([]string{"a.b"}, 65)} {
		if _, err := s.Create(t.Context(), "uid:1", api.WebhookSpec{URL: "https://example.com", Kinds: kinds}); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("the kinds %q: %v", kinds, err)
		}
	}
}

// TestNameThatLeadsHome: a name is checked where it leads when it is used.
func TestNameThatLeadsHome(t *testing.T) {
	db, e := open(t), standin.New()
	asked := false
	srv := httptest.NewTLSServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { asked = true }))
	defer srv.Close()
	s := webhook.New(webhook.Options{DB: db, Source: e, Pause: func(int) time.Duration { return -1 }})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	if _, err := s.Create(t.Context(), "uid:1", api.WebhookSpec{URL: "https://localhost:" + srv.URL[strings.LastIndex(srv.URL, ":")+1:]}); err != nil {
		t.Fatal(err)
	}
	create(t, e)
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) {
		list, err := s.List(t.Context())
		if err != nil || time.Now().After(deadline) {
			t.Fatal("it is not given up", err)
		}
		if list[0].Failed == 1 {
			break
		}
	}
	cancel()
	if err := <-ended; err != nil || asked {
		t.Errorf("%v, asked %v", err, asked)
	}
}
