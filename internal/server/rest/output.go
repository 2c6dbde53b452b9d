package rest

import (
	"context"
	"fmt"
	"math"
	"net/http"
	"strconv"

	"github.com/danielgtaylor/huma/v2"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/internal/server/access"
)

// offsets are where an exec's output is read from.
type offsets struct{ stdout, stderr int64 }

// Offsets are the query parameters for it.
type Offsets struct {
	Stdout int64 `query:"stdout" minimum:"0" doc:"Offset in stdout to begin at"`
	Stderr int64 `query:"stderr" minimum:"0" doc:"Offset in stderr to begin at"`
}

func (o offsets) from() map[api.Stream]int64 {
	return map[api.Stream]int64{api.Stdout: o.stdout, api.Stderr: o.stderr}
}

func (o offsets) id() string { return fmt.Sprintf("%d-%d", o.stdout, o.stderr) }

// told moves the offsets behind an event.
func (o *offsets) told(ev api.OutputEvent) {
	at := &o.stdout
	if ev.Stream == api.Stderr {
		at = &o.stderr
	}
	*at = ev.Offset + int64(len(ev.Data))
}

// resumed reads what a reader that comes back names.
func (o *offsets) resumed(id string) error {
	if id == "" {
		return nil
	}
	if n, err := fmt.Sscanf(id, "%d-%d", &o.stdout, &o.stderr); n != 2 || err != nil || o.stdout < 0 || o.stderr < 0 || o.id() != id {
		return bailey.Errorf(bailey.CodeUsage, "go on with the output", "send the id of the last event, or none", "Last-Event-ID %q is no id of an event", id)
	}
	return nil
}

func (s *Server) outputRoutes() {
	type outputIn struct {
		ByExec
		Offsets
		Follow bool   `query:"follow" doc:"Go on until it has ended; the last event then has exec"`
		Last   string `header:"Last-Event-ID" maxLength:"64" doc:"Go on behind this event"`
	}
	add(s, op{id: "get-output", method: http.MethodGet, path: "/sandboxes/{id}/execs/{exec}/output", summary: "read an exec's output as events", scope: access.Read,
		answers: eventTypes, schema: api.OutputEvent{}},
		func(ctx context.Context, in *outputIn) (*huma.StreamResponse, error) {
			at := offsets{in.Stdout, in.Stderr}
			if err := at.resumed(in.Last); err != nil {
				return nil, err
			}
			return &huma.StreamResponse{Body: func(c huma.Context) {
				s.stream(c, false, func(ctx context.Context, send func(string, any) error) error {
					return s.engine.Output(ctx, caller(ctx), in.ID, in.Exec, at.from(), in.Follow, func(ev api.OutputEvent) error {
						if ev.Exec == nil && ev.Error == nil {
							at.told(ev)
						}
						return send(at.id(), ev)
					})
				}, func(e *bailey.Error) any { return api.OutputEvent{Error: e} })
			}}, nil
		})

	type rawIn struct {
		ByExec
		Offset int64 `query:"offset" minimum:"0" doc:"The first byte"`
		Follow bool  `query:"follow" doc:"Go on until it has ended"`
	}
	for _, stream := range []api.Stream{api.Stdout, api.Stderr} {
		add(s, op{id: "get-" + string(stream), method: http.MethodGet, path: "/sandboxes/{id}/execs/{exec}/" + string(stream), summary: "read the bytes of an exec's " + string(stream), scope: access.Read,
			answers: []string{"application/octet-stream"}},
			func(ctx context.Context, in *rawIn) (*huma.StreamResponse, error) {
				return &huma.StreamResponse{Body: func(c huma.Context) {
					s.send(c, "application/octet-stream", func(ctx context.Context, d *download) error {
						return s.raw(ctx, in.ID, in.Exec, stream, in.Offset, in.Follow, d)
					})
				}}, nil
			})
	}
	s.socketRoute()
}

// raw sends the bytes of one stream.
func (s *Server) raw(ctx context.Context, ref, id string, stream api.Stream, offset int64, follow bool, d *download) error {
	d.headers.Set(api.HeaderOffset, strconv.FormatInt(offset, 10))
	// Of the other stream nothing is wanted.
	from := map[api.Stream]int64{api.Stdout: math.MaxInt64, api.Stderr: math.MaxInt64}
	from[stream] = offset
	return s.engine.Output(ctx, caller(ctx), ref, id, from, follow, func(ev api.OutputEvent) error {
		switch {
		case ev.Error != nil:
			return ev.Error
		case ev.Exec != nil || ev.Stream != stream:
			return nil
		case ev.Dropped > 0 && !d.begun:
			d.headers.Set(api.HeaderOffset, strconv.FormatInt(ev.Offset, 10))
		case ev.Dropped > 0:
			return bailey.Errorf(bailey.CodeTooLarge, "go on with the output", "read faster, or have more of it kept", "%d bytes are kept no more", ev.Dropped)
		}
		if len(ev.Data) == 0 {
			return nil
		}
		if _, err := d.Write(ev.Data); err != nil {
			return err
		}
		return d.flush()
	})
}

var eventTypes = []string{"text/event-stream", "application/x-ndjson"}
