package access

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/store/state"
)

// Prefix begins every token, so that scanners of repositories know it.
const Prefix = "bailey_"

// Keys are the API keys of a data folder.
type Keys struct {
	db   *state.DB
	opt  KeyOptions
	now  func() time.Time
	mu   sync.Mutex
	busy map[string]*rate.Limiter // by name of the key
}

// KeyOptions are what keys have that say nothing themselves.
type KeyOptions struct {
	Rate float64          // requests a second; 0 is 50
	All  api.Quota        // of all owners together
	Each api.Quota        // of an owner without a quota of its own
	Now  func() time.Time // nil: the real time
	// Changed, when given, is called when Quota may give other answers than before.
	Changed func()
}

// defaultRate is how many requests a second a key may make that says nothing.
const defaultRate = 50

// NewKeys opens the keys of a database.
func NewKeys(db *state.DB, opt KeyOptions) *Keys {
	if opt.Rate == 0 {
		opt.Rate = defaultRate
	}
	k := &Keys{db: db, opt: opt, now: opt.Now, busy: map[string]*rate.Limiter{}}
	if k.now == nil {
		k.now = time.Now
	}
	return k
}

var keyName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$`)

// Create makes a key. Its token is in the answer and nowhere else.
func (k *Keys) Create(ctx context.Context, spec api.KeySpec) (api.Key, error) {
	what := "make the key " + spec.Name
	usage := func(fix, format string, args ...any) error {
		return bailey.Errorf(bailey.CodeUsage, what, fix, format, args...)
	}
	switch {
	case !keyName.MatchString(spec.Name):
		return api.Key{}, usage("use letters, digits, dots, dashes and underscores, at most 63", "%q is no name", spec.Name)
	case len(spec.Scopes) == 0:
		return api.Key{}, usage("name scopes of: "+scopeNames(), "it has no scopes, and could do nothing")
	case spec.Rate < 0 || spec.Rate > 1e6:
		return api.Key{}, usage("give requests a second, at most 1000000", "%g is no rate", spec.Rate)
	}
	if q := spec.Quota; q.Sandboxes < 0 || q.Running < 0 || q.CPUs < 0 || q.Memory < 0 || q.Disk < 0 {
		return api.Key{}, usage("use 0 for no bound", "a quota is less than 0")
	}
	scopes := slices.Compact(slices.Sorted(slices.Values(spec.Scopes)))
	for _, s := range scopes {
		if !slices.Contains(Scopes, Scope(s)) {
			return api.Key{}, usage("name scopes of: "+scopeNames(), "there is no scope %q", s)
		}
	}
	secret := make([]byte, 25) // 200 bits: 40 characters
	rand.Read(secret)
	token := Prefix + strings.ToLower(base32.StdEncoding.EncodeToString(secret))
	key := api.Key{Name: spec.Name, Scopes: scopes, Created: k.now().UTC(), Quota: spec.Quota, Rate: spec.Rate}
	if l := spec.Lifetime; l.After > 0 {
		t := key.Created.Add(time.Duration(l.After))
		key.Expires = &t
	}
	if err := k.db.AddKey(ctx, key, hash(token)); err != nil {
		return api.Key{}, err
	}
	key.Token, key.E2B = token, "e2b_"+hex.EncodeToString(secret)
	k.changed()
	return key, nil
}

// List gives all keys, without their tokens.
func (k *Keys) List(ctx context.Context) ([]api.Key, error) { return k.db.Keys(ctx) }

// Delete makes a key worthless at once. What it owns stays.
func (k *Keys) Delete(ctx context.Context, name string) error {
	there, err := k.db.DeleteKey(ctx, name)
	if err == nil && !there {
		err = bailey.Errorf(bailey.CodeNotFound, "delete the key "+name, "", "there is none with that name")
	}
	k.mu.Lock()
	delete(k.busy, name)
	k.mu.Unlock()
	k.changed()
	return err
}

func (k *Keys) changed() {
	if k.opt.Changed != nil {
		k.opt.Changed()
	}
}

// Identify finds out whose token it is. A token that is none, or none any more, is
// an error with code unauthorized, which does not say which.
func (k *Keys) Identify(ctx context.Context, token string) (Identity, api.Key, error) {
	key, ok, err := k.db.KeyByHash(ctx, hash(token))
	if err != nil {
		return Identity{}, api.Key{}, err
	}
	if !ok || key.Expires != nil && !k.now().Before(*key.Expires) {
		return Identity{}, api.Key{}, bailey.Errorf(bailey.CodeUnauthorized, "do that", "use a key that is in force: bailey key ls, bailey key new", "the key is not known, or has expired")
	}
	id := Identity{}
	id.Name = "key:" + key.Name
	for _, s := range key.Scopes {
		id.Scopes = append(id.Scopes, Scope(s))
		id.Admin = id.Admin || Scope(s) == Admin
	}
	return id, key, nil
}

// Admit gives the identity that a token stands for, and counts the request; wait is
// more than 0, and err has code rate_limited, if it is one too many of perSecond.
func (k *Keys) Admit(ctx context.Context, token string) (id Identity, perSecond float64, wait time.Duration, err error) {
	id, key, err := k.Identify(ctx, token)
	if err != nil {
		return id, 0, 0, err
	}
	if wait, perSecond = k.take(key); wait > 0 {
		return id, perSecond, wait, bailey.Errorf(bailey.CodeRateLimited, "let the request in", fmt.Sprintf("try again in %s, or have the key's rate raised", wait.Round(time.Millisecond)),
			"%s may make %g requests a second", id.Name, perSecond)
	}
	return id, perSecond, 0, nil
}

// take counts a request. wait is more than 0 if it is one too many.
func (k *Keys) take(key api.Key) (wait time.Duration, perSecond float64) {
	perSecond = key.Rate
	if perSecond == 0 {
		perSecond = k.opt.Rate
	}
	k.mu.Lock()
	l := k.busy[key.Name]
	if l == nil || float64(l.Limit()) != perSecond {
		// Two seconds' worth may come at once, as programs do when they start.
		l = rate.NewLimiter(rate.Limit(perSecond), int(max(2*perSecond, 1)))
		k.busy[key.Name] = l
	}
	k.mu.Unlock()
	now := k.now()
	r := l.ReserveN(now, 1)
	if d := r.DelayFrom(now); d > 0 {
		r.CancelAt(now)
		return d, perSecond
	}
	return 0, perSecond
}

// Quota gives an owner's quota, and for "" that of all together.
func (k *Keys) Quota(owner string) api.Quota {
	if owner == "" {
		return k.opt.All
	}
	name, ok := strings.CutPrefix(owner, "key:")
	if !ok {
		return k.opt.Each
	}
	// A database that cannot be read stops the create by itself.
	key, ok, err := k.db.KeyByName(context.Background(), name)
	if err != nil || !ok || key.Quota == (api.Quota{}) {
		return k.opt.Each
	}
	return key.Quota
}

func hash(token string) []byte {
	h := sha256.Sum256([]byte(token))
	return h[:]
}

func scopeNames() string {
	return strings.Trim(fmt.Sprint(Scopes), "[]")
}
