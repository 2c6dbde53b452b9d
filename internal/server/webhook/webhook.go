package webhook

import (
	"bytes"
	"context"
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/netip"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// The headers of a delivery.
const (
	// HeaderSignature is t=SECONDS,v1=HEX: the time, and the HMAC-SHA256 by the
	// webhook's secret of that time, a dot and the body.
	HeaderSignature = "Bailey-Signature"
	// HeaderEvent is the event's number: a receiver that has seen it drops it.
	HeaderEvent = "Bailey-Event"
)

// Source is where events come from: the engine.
type Source interface {
	Events(ctx context.Context, who engine.Caller, seq int64, each func(api.Event) error) error
}

// Options configure a Sender.
type Options struct {
	DB     *state.DB
	Source Source
	Allow  []netip.Prefix // addresses beside the public internet's
	Log    *slog.Logger   // nil: none
	// Pause is how long to wait before the next try, after so many that failed; less
	// than 0 gives the event up. nil: 1 s, doubled each time up to 10 minutes, for about
	// a day.
	Pause func(tries int) time.Duration
}

// Sender delivers events to webhooks.
type Sender struct {
	opt  Options
	http *http.Client

	mu      sync.Mutex
	ctx     context.Context // nil until Run
	running map[string]context.CancelFunc
	tasks   sync.WaitGroup
}

// New makes a Sender. Run starts it.
func New(opt Options) *Sender {
	if opt.Log == nil {
		opt.Log = slog.New(slog.DiscardHandler)
	}
	if opt.Pause == nil {
		opt.Pause = defaultPause
	}
	return &Sender{opt: opt, http: client(opt.Allow), running: map[string]context.CancelFunc{}}
}

func defaultPause(tries int) time.Duration {
	if tries > 150 { // 10 minutes each: a day
		return -1
	}
	return min(time.Second<<min(tries-1, 10), 10*time.Minute)
}

// Run delivers until ctx ends.
func (s *Sender) Run(ctx context.Context) error {
	if err := s.startAll(ctx); err != nil {
		if ctx.Err() != nil {
			return nil
		}
		return err
	}
	<-ctx.Done()
	s.tasks.Wait()
	s.http.CloseIdleConnections()
	return nil
}

// startAll begins the deliveries of all webhooks there are. The list is read under
// the lock that Create makes a row under: one that is made meanwhile is started by
// the one or the other, and once.
func (s *Sender) startAll(ctx context.Context) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	list, err := s.opt.DB.Webhooks(ctx)
	if err != nil {
		return err
	}
	s.ctx = ctx
	for _, w := range list {
		s.start(w)
	}
	return nil
}

// start begins a webhook's deliveries. mu is held.
func (s *Sender) start(w state.Webhook) {
	if s.ctx == nil || s.ctx.Err() != nil {
		return // Run starts it
	}
	ctx, cancel := context.WithCancel(s.ctx)
	s.running[w.ID] = cancel
	s.tasks.Go(func() {
		defer cancel()
		s.follow(ctx, w)
	})
}

// kind is what a webhook may ask for.
var kind = regexp.MustCompile(`^([a-z_]+\.)*([a-z_]+|\*)$`)

// Create has a URL told of what happens from now on.
func (s *Sender) Create(ctx context.Context, owner string, spec api.WebhookSpec) (api.Webhook, error) {
	if err := checkURL(spec.URL, s.opt.Allow); err != nil {
		return api.Webhook{}, err
	}
	if len(spec.Kinds) > 64 {
		return api.Webhook{}, bailey.Errorf(bailey.CodeUsage, "make the webhook", "use sandbox.* and the like", "%d kinds are more than 64", len(spec.Kinds))
	}
	for _, k := range spec.Kinds {
		if !kind.MatchString(k) {
			return api.Webhook{}, bailey.Errorf(bailey.CodeUsage, "make the webhook", "write kinds like sandbox.created or sandbox.*", "%q is no kind of event", k)
		}
	}
	_, last, err := s.opt.DB.EventRange(ctx)
	if err != nil {
		return api.Webhook{}, err
	}
	secret := make([]byte, 32)
	rand.Read(secret)
	w := state.Webhook{Webhook: api.Webhook{ID: "wh-" + strings.ToLower(rand.Text()[:16]), URL: spec.URL, Kinds: spec.Kinds}, Owner: owner, Key: secret, Cursor: last}
	s.mu.Lock()
	defer s.mu.Unlock()
	if err := s.opt.DB.AddWebhook(ctx, w); err != nil {
		return api.Webhook{}, err
	}
	s.start(w)
	out := w.Webhook
	out.Secret = base64.StdEncoding.EncodeToString(secret)
	return out, nil
}

// List gives all webhooks, without their secrets.
func (s *Sender) List(ctx context.Context) ([]api.Webhook, error) {
	rows, err := s.opt.DB.Webhooks(ctx)
	list := make([]api.Webhook, len(rows))
	for i, r := range rows {
		list[i] = r.Webhook
	}
	return list, err
}

// Delete ends a webhook.
func (s *Sender) Delete(ctx context.Context, id string) error {
	there, err := s.opt.DB.DeleteWebhook(ctx, id)
	if err != nil {
		return err
	}
	s.mu.Lock()
	if cancel := s.running[id]; cancel != nil {
		cancel()
		delete(s.running, id)
	}
	s.mu.Unlock()
	if !there {
		return bailey.Errorf(bailey.CodeNotFound, "delete the webhook "+id, "", "there is none with that id")
	}
	return nil
}

// follow delivers one webhook's events in their order until ctx ends.
func (s *Sender) follow(ctx context.Context, w state.Webhook) {
	for tries := 1; ; tries++ {
		err := s.opt.Source.Events(ctx, engine.Caller{Name: "webhook:" + w.ID, Admin: true}, w.Cursor+1, func(ev api.Event) error {
			tries = 1
			failed := false
			if wants(w.Kinds, ev.Kind) {
				ok, err := s.deliver(ctx, w, ev)
				if err != nil {
					return err // ctx has ended: it is delivered at the next start
				}
				failed = !ok
			}
			w.Cursor = ev.Seq
			// What was delivered is written down though this ends: it would be sent again.
			return s.opt.DB.MoveWebhook(context.WithoutCancel(ctx), w.ID, ev.Seq, failed)
		})
		if ctx.Err() != nil {
			return
		}
		s.opt.Log.Error("events cannot be read for a webhook", "webhook", w.ID, "error", err)
		if !wait(ctx, max(s.opt.Pause(min(tries, 20)), 0)) {
			return
		}
	}
}

// deliver tries until it is taken; ok is false when it was given up. The error is
// that ctx has ended.
func (s *Sender) deliver(ctx context.Context, w state.Webhook, ev api.Event) (ok bool, err error) {
	body, err := json.Marshal(ev)
	if err != nil {
		return false, nil // an event that is no JSON: nobody can be told
	}
	for tries := 1; ; tries++ {
		err := s.post(ctx, w, ev, body)
		if err == nil {
			return true, nil
		}
		if ctx.Err() != nil {
			return false, ctx.Err()
		}
		pause := s.opt.Pause(tries)
		s.opt.Log.Warn("a webhook did not take an event", "webhook", w.ID, "event", ev.Seq, "try", tries, "error", err, "again", pause)
		if pause < 0 {
			return false, nil
		}
		if !wait(ctx, pause) {
			return false, ctx.Err()
		}
	}
}

func (s *Sender) post(ctx context.Context, w state.Webhook, ev api.Event, body []byte) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, w.URL, bytes.NewReader(body))
	if err != nil {
		return err
	}
	req.Header.Set("Content-Type", "application/json")
	req.Header.Set("User-Agent", "bailey-webhook")
	req.Header.Set(HeaderEvent, strconv.FormatInt(ev.Seq, 10))
	req.Header.Set(HeaderSignature, Sign(w.Key, time.Now(), body))
	resp, err := s.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	io.Copy(io.Discard, io.LimitReader(resp.Body, 64<<10)) // only the status counts
	if resp.StatusCode < 200 || resp.StatusCode > 299 {
		return errors.New("it answered " + resp.Status)
	}
	return nil
}

// Sign gives the value of HeaderSignature for a body sent at a time.
func Sign(key []byte, at time.Time, body []byte) string {
	h := hmac.New(sha256.New, key)
	fmt.Fprintf(h, "%d.", at.Unix())
	h.Write(body)
	return fmt.Sprintf("t=%d,v1=%s", at.Unix(), hex.EncodeToString(h.Sum(nil)))
}

// wants tells whether a webhook of these kinds is told of an event.
func wants(kinds []string, k string) bool {
	for _, want := range kinds {
		prefix, all := strings.CutSuffix(want, "*")
		if want == k || all && strings.HasPrefix(k, prefix) {
			return true
		}
	}
	return len(kinds) == 0
}

func wait(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-t.C:
		return true
	}
}
