package e2b

import (
	"context"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// metric is what a sandbox uses now; sizes are in bytes.
type metric struct {
	Time      time.Time `json:"timestamp"`
	Unix      int64     `json:"timestampUnix"`
	CPUs      int       `json:"cpuCount"`
	CPU       float64   `json:"cpuUsedPct"`
	Memory    int64     `json:"memUsed"`
	MemoryAll int64     `json:"memTotal"`
	Cache     int64     `json:"memCache"`
	Disk      int64     `json:"diskUsed"`
	DiskAll   int64     `json:"diskTotal"`
}

// samples are processor times that were seen last, to tell a share from.
type samples struct {
	mu   sync.Mutex
	last map[string]sample
}

type sample struct {
	at  time.Time
	cpu time.Duration
}

// maxSamples bounds what is remembered; then all is forgotten.
const maxSamples = 10000

// share gives how much of a processor was used since it was looked at last, in percent.
func (s *samples) share(id string, now sample, since time.Time) float64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	was, ok := s.last[id]
	if !ok || was.cpu > now.cpu {
		was = sample{at: since}
	}
	if s.last == nil || len(s.last) >= maxSamples {
		s.last = map[string]sample{}
	}
	s.last[id] = now
	if d := now.at.Sub(was.at); d > 0 {
		return 100 * float64(now.cpu-was.cpu) / float64(d)
	}
	return 0
}

func (s *Server) metric(ctx context.Context, who engine.Caller, b api.Sandbox) (metric, error) {
	st, err := s.engine.Stats(ctx, who, b.ID)
	if err != nil {
		return metric{}, err
	}
	l := s.listed(b)
	now := time.Now().UTC()
	m := metric{Time: now, Unix: now.Unix(), CPUs: l.CPUs, Memory: max(st.Memory, 0), MemoryAll: b.Limits.Memory, Disk: max(st.Disk, 0), DiskAll: l.Disk << 20}
	if m.MemoryAll == 0 {
		m.MemoryAll = hostMemory()
	}
	if st.CPU >= 0 {
		since := b.Created
		if b.Started != nil {
			since = *b.Started
		}
		m.CPU = s.samples.share(b.ID, sample{now, time.Duration(st.CPU)}, since)
	}
	return m, nil
}

func hostMemory() int64 {
	var i unix.Sysinfo_t
	if unix.Sysinfo(&i) != nil {
		return 0
	}
	return int64(i.Totalram) * int64(i.Unit)
}

// metrics gives the moment: Bailey keeps no history.
func (s *Server) metrics(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	list := []metric{}
	now := time.Now()
	if start, err := strconv.ParseInt(r.URL.Query().Get("start"), 10, 64); err == nil && start > now.Unix() {
		return http.StatusOK, list, nil
	}
	if end, err := strconv.ParseInt(r.URL.Query().Get("end"), 10, 64); err == nil && end < now.Unix() {
		return http.StatusOK, list, nil
	}
	m, err := s.metric(ctx, who.Caller, b)
	return http.StatusOK, append(list, m), err
}

// entry is a line of a sandbox's log.
type entry struct {
	Time    time.Time         `json:"timestamp"`
	Level   string            `json:"level"`
	Message string            `json:"message"`
	Fields  map[string]string `json:"fields"`
}

type line struct {
	Time time.Time `json:"timestamp"`
	Line string    `json:"line"`
}

// logs are the starts and ends of commands.
func (s *Server) logs(ctx context.Context, who access.Identity, r *http.Request, _ http.ResponseWriter) (int, any, error) {
	b, err := s.sandbox(ctx, who, r)
	if err != nil {
		return 0, nil, err
	}
	start, _ := strconv.ParseInt(r.URL.Query().Get("start"), 10, 64) // milliseconds; what is no number is none
	execs, err := s.engine.Execs(ctx, who.Caller, b.ID)
	out := struct {
		Logs    []line  `json:"logs"`
		Entries []entry `json:"logEntries"`
	}{[]line{}, []entry{}}
	tell := func(at time.Time, level, message, id string) {
		if at.UnixMilli() >= start {
			out.Logs = append(out.Logs, line{at, message})
			out.Entries = append(out.Entries, entry{at, level, message, map[string]string{"exec": id}})
		}
	}
	for _, x := range execs {
		if strings.HasPrefix(x.ID, probePrefix) {
			continue
		}
		tell(x.Started, "info", "started "+strings.Join(x.Args, " "), x.ID)
		if x.End != nil && x.Ended != nil {
			level := "info"
			if x.End.Reason != bailey.EndExit {
				level = "error"
			}
			tell(*x.Ended, level, x.End.String(), x.ID)
		}
	}
	return http.StatusOK, out, err
}
