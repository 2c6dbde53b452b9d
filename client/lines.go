package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net/http"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// silence is how long a stream may say nothing before it is taken for dead. The
// server sends an empty line at least every 15 seconds.
const silence = 60 * time.Second

// maxLine bounds one event.
const maxLine = 16 << 20

// errBroken is that a stream ended before its end.
var errBroken = errors.New("the connection broke")

// errEnded is what each gives to end a stream without an error.
var errEnded = errors.New("ended")

// lines calls each with every JSON line of a stream until that ends. A stream
// that breaks gives errBroken.
func (c *Client) lines(ctx context.Context, r call, each func([]byte) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	if r.header == nil {
		r.header = http.Header{}
	}
	r.header.Set("Accept", "application/x-ndjson")
	resp, err := c.do(ctx, r)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	watchdog := time.AfterFunc(silence, cancel)
	defer watchdog.Stop()
	s := bufio.NewScanner(resp.Body)
	s.Buffer(make([]byte, 64<<10), maxLine)
	for s.Scan() {
		watchdog.Reset(silence)
		if len(s.Bytes()) == 0 {
			continue
		}
		if err := each(s.Bytes()); err != nil {
			if err == errEnded {
				return nil
			}
			return err
		}
	}
	if err := s.Err(); errors.Is(err, bufio.ErrTooLong) {
		return bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "a line is longer than %d bytes", maxLine)
	} else if err != nil {
		return errBroken
	}
	return nil
}

// follow calls lines again and again, for streams that go on where they stopped:
// next gives the request for what has not been told yet. It ends when each gives
// ended, an error comes that is none of the connection, or patience is used up.
func (c *Client) follow(ctx context.Context, next func() call, each func([]byte) error) error {
	wait := newPatience(c.patience)
	for {
		over := false
		err := c.lines(ctx, next(), func(b []byte) error {
			wait = newPatience(c.patience) // it lives
			err := each(b)
			over = err == errEnded
			return err
		})
		switch {
		case over:
			return nil
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case err != nil && err != errBroken && !errors.Is(err, io.ErrUnexpectedEOF):
			return err
		case !wait.more(ctx):
			return c.unavailable(errBroken)
		}
	}
}

func decode[T any](b []byte) (T, error) {
	var v T
	if err := json.Unmarshal(b, &v); err != nil {
		return v, bailey.Errorf(bailey.CodeProtocol, "read the daemon's answer", "", "%w", err)
	}
	return v, nil
}
