package e2b

import (
	"cmp"
	"context"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// maxPage is the most that a page of a list has.
const maxPage = 100

// listRunning is the list of old: what runs, all at once.
func (s *Server) listRunning(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	q := r.URL.Query()
	want := query{states: []string{"running"}, newest: true}
	var err error
	if want.metadata, err = metadataFilter(q.Get("metadata")); err != nil {
		return 0, nil, err
	}
	all, err := s.find(ctx, who, want)
	return http.StatusOK, all, err
}

func (s *Server) list(ctx context.Context, who access.Identity, r *http.Request, w http.ResponseWriter) (int, any, error) {
	want, limit, from, err := readQuery(r.URL.Query())
	if err != nil {
		return 0, nil, err
	}
	all, err := s.find(ctx, who, want)
	if err != nil {
		return 0, nil, err
	}
	running := 0
	for _, l := range all {
		if l.State == "running" {
			running++
		}
	}
	if from != nil {
		all = slices.DeleteFunc(all, func(l listed) bool { return want.compare(l, from.listed()) <= 0 })
	}
	if len(all) > limit {
		all = all[:limit]
		last := all[limit-1]
		w.Header().Set("X-Next-Token", strconv.FormatInt(last.Started.UnixNano(), 36)+"."+last.Sandbox)
	}
	w.Header().Set("X-Total-Running", strconv.Itoa(running))
	return http.StatusOK, all, nil
}

// query is what a list is to have.
type query struct {
	states   []string
	metadata map[string]string
	after    time.Time
	template string
	newest   bool // first
}

func (q query) compare(a, b listed) int {
	c := cmp.Or(a.Started.Compare(b.Started), strings.Compare(a.Sandbox, b.Sandbox))
	if q.newest {
		return -c
	}
	return c
}

// cursor is the last of the page before.
type cursor struct {
	started time.Time
	id      string
}

func (c cursor) listed() listed { return listed{Started: c.started, Sandbox: c.id} }

// readQuery reads what a list was asked for.
func readQuery(v url.Values) (q query, limit int, from *cursor, err error) {
	bad := func(what string) error { return fail(http.StatusBadRequest, "the query's "+what) }
	q = query{states: []string{"running", "paused"}, newest: true, template: v.Get("template")}
	if states := strings.Join(v["state"], ","); states != "" {
		q.states = strings.Split(states, ",")
		if slices.ContainsFunc(q.states, func(s string) bool { return s != "running" && s != "paused" }) {
			return q, 0, nil, bad("state is not running or paused")
		}
	}
	if q.metadata, err = metadataFilter(v.Get("metadata")); err != nil {
		return q, 0, nil, err
	}
	if t := v.Get("startedAfter"); t != "" {
		if q.after, err = time.Parse(time.RFC3339Nano, t); err != nil {
			return q, 0, nil, bad("startedAfter is no time")
		}
	}
	switch v.Get("order") {
	case "", "desc":
	case "asc":
		q.newest = false
	default:
		return q, 0, nil, bad("order is not asc or desc")
	}
	limit = maxPage
	if n := v.Get("limit"); n != "" {
		if limit, err = strconv.Atoi(n); err != nil || limit < 1 || limit > maxPage {
			return q, 0, nil, bad("limit is not 1 to " + strconv.Itoa(maxPage))
		}
	}
	if t := v.Get("nextToken"); t != "" {
		at, id, ok := strings.Cut(t, ".")
		n, perr := strconv.ParseInt(at, 36, 64)
		if !ok || perr != nil || !isID(id) {
			return q, 0, nil, bad("nextToken is none that a page before had")
		}
		from = &cursor{time.Unix(0, n).UTC(), id}
	}
	return q, limit, from, nil
}

// metadataFilter reads a filter: a query within a query, whose keys and values were
// escaped once more.
func metadataFilter(text string) (map[string]string, error) {
	if text == "" {
		return nil, nil
	}
	bad := fail(http.StatusBadRequest, "the query's metadata is no list of keys and values")
	v, err := url.ParseQuery(text)
	if err != nil {
		return nil, bad
	}
	m := map[string]string{}
	for k, values := range v {
		key, err := url.QueryUnescape(k)
		value, verr := url.QueryUnescape(values[len(values)-1])
		if err != nil || verr != nil {
			return nil, bad
		}
		if strings.HasPrefix(key, ownLabel) {
			return nil, fail(http.StatusBadRequest, "the metadata's keys that begin with "+ownLabel+" are Bailey's own")
		}
		m[key] = value
	}
	return m, nil
}

// find gives all sandboxes that are wanted, in order.
func (s *Server) find(ctx context.Context, who access.Identity, q query) ([]listed, error) {
	out := []listed{}
	ask := api.SandboxQuery{Labels: q.metadata, Limit: 1000}
	for {
		page, next, err := s.engine.Sandboxes(ctx, who.Caller, ask)
		if err != nil {
			return nil, err
		}
		for _, b := range page {
			l := s.listed(b)
			if slices.Contains(q.states, l.State) && !l.Started.Truncate(time.Millisecond).Before(q.after.Truncate(time.Millisecond)) &&
				(q.template == "" || q.template == l.Template) {
				out = append(out, l)
			}
		}
		if next == "" {
			break
		}
		ask.After = next
	}
	slices.SortFunc(out, q.compare)
	return out, nil
}
