package gatebench

import (
	"context"
	"strconv"
	"time"

	"github.com/bailey-sandbox/bailey/internal/bench/result"
)

// goalSpliced is of nginx's throughput.
const goalSpliced = 0.7

func (b *bench) download(ctx context.Context) (Measure, error) {
	m, took, err := b.downloads(ctx, work{scheme: "https", host: apiHost, what: "terminated"}, nameDirect, nameGate, nameReverse, nameMitm)
	if err != nil {
		return m, err
	}
	for _, other := range []string{nameReverse, nameMitm} {
		if t := took[other]; t != nil {
			m.Targets = append(m.Targets, result.AtLeast("throughput, bailey gate / "+other, median(ratios(took[nameGate], t)), 0))
		}
	}
	return m, nil
}

func (b *bench) downloadSpliced(ctx context.Context) (Measure, error) {
	m, took, err := b.downloads(ctx, work{scheme: "https", host: filesHost, what: "spliced"}, nameDirect, nameGate, nameNginx)
	if err != nil {
		return m, err
	}
	if t := took[nameNginx]; t != nil {
		m.Targets = append(m.Targets, result.AtLeast("throughput, bailey gate / nginx", median(ratios(took[nameGate], t)), goalSpliced))
	}
	return m, nil
}

// downloads measures one large answer, over TLS and HTTP/1.1, in bytes a second.
func (b *bench) downloads(ctx context.Context, w work, names ...string) (m Measure, took map[string][]float64, err error) {
	m = Measure{What: strconv.FormatFloat(float64(b.opt.Size)/1e9, 'g', 3, 64) + " GB over TLS and HTTP/1.1 in one answer, " + w.what}
	subjects, err := b.subjects(w, names...)
	if err != nil {
		return m, nil, err
	}
	for _, name := range names {
		m.missing(b.missing[name])
	}
	took = map[string][]float64{}
	for _, s := range subjects {
		defer s.close()
	}
	if err := b.turns(ctx, "download, "+w.what, b.opt.Downloads, subjects, func(s *subject, round int) error {
		size := b.opt.Size
		if round < 0 {
			size /= 10
		}
		begin := time.Now()
		if err := get(ctx, s.client, s.url+"/v1/bytes?bytes="+strconv.FormatInt(size, 10), "", size); err != nil {
			return err
		}
		if round >= 0 {
			took[s.name] = append(took[s.name], float64(size)/time.Since(begin).Seconds())
		}
		return nil
	}); err != nil {
		return m, nil, err
	}
	for _, s := range subjects {
		if s.failed != nil {
			m.missing(&result.Missing{Name: s.name, Why: s.why()})
			delete(took, s.name)
			continue
		}
		m.Subjects = append(m.Subjects, Subject{Name: s.name, Features: s.features, Bytes: summarise(took[s.name])})
	}
	return m, took, nil
}
