package guest

import (
	"context"
	"io"
	"sync"

	bailey "github.com/bailey-sandbox/bailey"
)

// RunResult is what Run collected.
type RunResult struct {
	End            ExecEnd
	Stdout, Stderr []byte // exactly the bytes written, NUL included
	Truncated      bool   // there was more than max
}

// Run runs a command to its end and collects its output, at most max bytes of
// each stream; the rest is read and dropped. It returns when the main process
// has ended, whatever that left behind. stdin, if not nil, is its input.
func (c *Client) Run(ctx context.Context, spec ExecSpec, stdin io.Reader, max int64) (res RunResult, err error) {
	if spec.Terminal != nil || spec.Files != nil || max < 0 {
		return res, bailey.Errorf(bailey.CodeUsage, "run a command in the sandbox", "use Exec", "Run collects from pipes only, up to a bound")
	}
	spec.Stdin, spec.ManualAck = stdin != nil, false
	p, err := c.Exec(ctx, spec)
	if err != nil {
		return res, err
	}
	defer p.Close()
	if stdin != nil && p.Stdin() != nil {
		go func() {
			io.Copy(p.Stdin(), stdin) // a command need not read its input to the end
			p.Stdin().Close()
		}()
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	for i, dst := range [...]*[]byte{&res.Stdout, &res.Stderr} {
		o := p.out[i]
		if o == nil {
			continue
		}
		wg.Add(1)
		go func() {
			defer wg.Done()
			buf := make([]byte, 32<<10)
			for {
				n, err := o.Read(buf)
				if keep := min(int64(n), max-int64(len(*dst))); keep > 0 {
					*dst = append(*dst, buf[:keep]...)
				}
				if int64(len(*dst)) == max && int64(n) > 0 && o.Offset() > max {
					mu.Lock()
					res.Truncated = true
					mu.Unlock()
				}
				if err != nil {
					return
				}
			}
		}()
	}
	end, err := p.Wait(ctx)
	if err != nil {
		p.Close() // ends the reading
		wg.Wait()
		return res, err
	}
	for i, o := range p.out {
		if o != nil {
			o.endAt(end.Output[i])
		}
	}
	wg.Wait()
	res.End = end
	return res, nil
}
