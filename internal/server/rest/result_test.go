package rest

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"
)

// client is a connection whose client takes so many bytes and no more.
type client struct {
	*httptest.ResponseRecorder
	takes     int
	deadlines []time.Time
}

func (c *client) SetWriteDeadline(t time.Time) error {
	c.deadlines = append(c.deadlines, t)
	return nil
}

func (c *client) Write(p []byte) (int, error) {
	if last := len(c.deadlines) - 1; last < 0 || c.deadlines[last].IsZero() {
		return 0, errors.New("it would wait for ever")
	}
	n := min(len(p), c.takes-c.Body.Len())
	c.ResponseRecorder.Write(p[:n])
	if n < len(p) {
		return n, errors.New("the client takes no more")
	}
	return n, nil
}

// TestAnswersHaveDeadlines: each piece of an answer has its time, and a client that
// takes none ends the answer.
func TestAnswersHaveDeadlines(t *testing.T) {
	long := bytes.Repeat([]byte("0123456789"), 100_000)
	for _, takes := range []int{len(long), 300_000, 0} {
		c := &client{ResponseRecorder: httptest.NewRecorder(), takes: takes}
		n, err := (&bounded{c, http.NewResponseController(c)}).Write(long)
		if n != takes || (err != nil) != (takes < len(long)) || !bytes.Equal(c.Body.Bytes(), long[:takes]) {
			t.Errorf("of %d bytes %d were taken, %v", takes, n, err)
		}
		if want := min(takes/(256<<10)+1, 4); len(c.deadlines) != want {
			t.Errorf("%d pieces had a deadline, want %d", len(c.deadlines), want)
		}
	}
	c := &client{ResponseRecorder: httptest.NewRecorder(), takes: 1 << 20}
	New(Options{}).ServeHTTP(c, httptest.NewRequest("GET", "/v1/nothing", nil))
	if last := len(c.deadlines) - 1; c.Body.Len() == 0 || last < 1 || !c.deadlines[last].IsZero() {
		t.Errorf("the answer %q had deadlines %v", c.Body, c.deadlines)
	}
}
