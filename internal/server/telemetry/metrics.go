package telemetry

import (
	"context"
	"net/http"
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/engine"
)

// latencies are the buckets of all histograms, in seconds: from below a
// millisecond, which a warm sandbox takes, to the minutes of a pull.
var latencies = []float64{.0005, .001, .002, .005, .01, .02, .05, .1, .2, .5, 1, 2, 5, 10, 30, 60, 300}

// Metrics are the daemon's metrics.
type Metrics struct {
	registry *prometheus.Registry
	requests *prometheus.CounterVec
	took     *prometheus.HistogramVec
	inFlight prometheus.Gauge
	creates  *prometheus.HistogramVec
	warm     *prometheus.CounterVec
	failed   *prometheus.CounterVec
	execs    *prometheus.HistogramVec
	acts     *prometheus.HistogramVec
	bytes    *prometheus.CounterVec
}

// Lister lists sandboxes, for counts by state at each scrape.
type Lister interface {
	Sandboxes(ctx context.Context, who engine.Caller, q api.SandboxQuery) (list []api.Sandbox, next string, err error)
}

// NewMetrics makes the metrics; version is the daemon's.
func NewMetrics(version string, sandboxes Lister) *Metrics {
	histogram := func(name, help string, labels ...string) *prometheus.HistogramVec {
		return prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: name, Help: help, Buckets: latencies}, labels)
	}
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	m := &Metrics{
		registry: prometheus.NewRegistry(),
		requests: counter("bailey_http_requests_total", "Requests answered, by operation and status.", "operation", "status"),
		took:     histogram("bailey_http_request_seconds", "How long answers took, streams until their end.", "operation"),
		inFlight: prometheus.NewGauge(prometheus.GaugeOpts{Name: "bailey_http_requests_in_flight", Help: "Requests that are being answered."}),
		creates:  histogram("bailey_create_seconds", "How long creates took that gave a sandbox, by level and whether a warm one was taken (hit, miss, none).", "level", "warm"),
		warm:     counter("bailey_warm_total", "Creates where sandboxes are kept ready, by level and what came of it: hit, or what kept one from being taken.", "level", "result"),
		failed:   counter("bailey_failures_total", "Acts that failed, by act and code.", "act", "code"),
		execs:    histogram("bailey_exec_start_seconds", "How long it took until a command ran.", "result"),
		acts:     histogram("bailey_act_seconds", "How long pauses, resumes, snapshots, forks and deletes took.", "act"),
		bytes:    counter("bailey_file_bytes_total", "Bytes of files that went in and out.", "direction"),
	}
	info := prometheus.NewGauge(prometheus.GaugeOpts{Name: "bailey_info", Help: "The daemon's version.", ConstLabels: prometheus.Labels{"version": version}})
	info.Set(1)
	m.registry.MustRegister(m.requests, m.took, m.inFlight, m.creates, m.warm, m.failed, m.execs, m.acts, m.bytes, info,
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}),
		&states{sandboxes: sandboxes, desc: prometheus.NewDesc("bailey_sandboxes", "Sandboxes by state and level.", []string{"state", "level"}, nil)})
	return m
}

// Handler serves the metrics.
func (m *Metrics) Handler() http.Handler {
	return promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4, Timeout: 30 * time.Second})
}

// states counts sandboxes when it is asked.
type states struct {
	sandboxes Lister
	desc      *prometheus.Desc
}

func (s *states) Describe(c chan<- *prometheus.Desc) { c <- s.desc }

func (s *states) Collect(c chan<- prometheus.Metric) {
	type kind struct{ state, level string }
	counts := map[kind]float64{}
	for _, st := range []api.State{api.StateQueued, api.StateRunning, api.StatePaused, api.StateStopped, api.StateLost, api.StateFailed} {
		counts[kind{string(st), ""}] = 0
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	q := api.SandboxQuery{Limit: 1000}
	for {
		list, next, err := s.sandboxes.Sandboxes(ctx, engine.Caller{Name: "metrics", Admin: true}, q)
		if err != nil {
			c <- prometheus.NewInvalidMetric(s.desc, err)
			return
		}
		for _, b := range list {
			counts[kind{string(b.State), b.Isolation.String()}]++
		}
		if q.After = next; next == "" {
			break
		}
	}
	for k, n := range counts {
		c <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, n, k.state, k.level)
	}
}

// Requests counts what next answers; operation names a request's operation, "" is none.
func (m *Metrics) Requests(next http.Handler, operation func(*http.Request) string) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		name := operation(r)
		if name == "" {
			name = "none"
		}
		begin := time.Now()
		m.inFlight.Inc()
		rec := &recorder{ResponseWriter: w, status: http.StatusOK}
		defer func() {
			m.inFlight.Dec()
			m.took.WithLabelValues(name).Observe(time.Since(begin).Seconds())
			m.requests.WithLabelValues(name, strconv.Itoa(rec.status)).Inc()
		}()
		next.ServeHTTP(rec, r)
	})
}

// recorder sees an answer's status.
type recorder struct {
	http.ResponseWriter
	status int
	begun  bool
}

func (r *recorder) WriteHeader(status int) {
	if !r.begun {
		r.begun, r.status = true, status
	}
	r.ResponseWriter.WriteHeader(status)
}

func (r *recorder) Write(p []byte) (int, error) {
	r.begun = true
	return r.ResponseWriter.Write(p)
}

// Unwrap is for http.ResponseController.
func (r *recorder) Unwrap() http.ResponseWriter { return r.ResponseWriter }
