package engine

import (
	"context"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
)

// Exec gives what is known about an exec, also of a sandbox that has ended.
// Looking is no activity and wakes nothing.
func (e *Engine) Exec(ctx context.Context, who Caller, ref, id string) (api.Exec, error) {
	_, doc, b, err := e.findExec(ctx, who, ref, id)
	if err != nil {
		return api.Exec{}, err
	}
	e.showLeft(ctx, b, &doc.Exec, doc.Guest)
	return doc.Exec, nil
}

// Execs lists a sandbox's execs, the oldest first: those that have not ended, and
// those that have within the last 48 hours.
func (e *Engine) Execs(ctx context.Context, who Caller, ref string) ([]api.Exec, error) {
	b, r, err := e.look(ctx, who, ref)
	if err != nil {
		return nil, err
	}
	rows, err := e.db.Execs(ctx, r.Sandbox.ID)
	if err != nil {
		return nil, err
	}
	list, insides := make([]api.Exec, 0, len(rows)), []string{}
	for _, row := range rows {
		doc, err := readExec(row)
		if err != nil {
			return nil, err
		}
		if x := e.openExec(r.Sandbox.ID, row.ID); x != nil {
			doc = x.known()
		}
		list, insides = append(list, doc.Exec), append(insides, doc.Guest)
	}
	left := e.leftIn(ctx, b)
	for i := range list {
		list[i].Left = left[insides[i]]
	}
	return list, nil
}

// WaitExec gives an exec once its main process has ended, whatever that left
// behind. When its sandbox ended under it the error has code sandbox_lost or
// sandbox_ended, with what is known beside it.
func (e *Engine) WaitExec(ctx context.Context, who Caller, ref, id string) (api.Exec, error) {
	x, doc, _, err := e.findExec(ctx, who, ref, id)
	if err != nil {
		return api.Exec{}, err
	}
	if x != nil {
		select {
		case <-x.ended:
		case <-ctx.Done():
			return api.Exec{}, ctx.Err()
		case <-e.ctx.Done():
			return api.Exec{}, bailey.Errorf(bailey.CodeDaemonUnavailable, "wait for the command", "ask again", "the daemon is being stopped")
		}
		doc = x.known()
	}
	return doc.Exec, lostError(doc)
}

// leftWithin bounds the question what lives inside.
const leftWithin = 2 * time.Second

// showLeft fills in how many processes of an exec live, whose id inside is inside.
func (e *Engine) showLeft(ctx context.Context, b *box, x *api.Exec, inside string) {
	if b == nil || x.Ended == nil && x.State != api.ExecRunning {
		return
	}
	u := b.take()
	if u == nil {
		return
	}
	defer u.release()
	ctx, cancel := context.WithTimeout(ctx, leftWithin)
	defer cancel()
	if client, err := u.gen.speak(ctx); err == nil {
		if st, err := client.Status(ctx, inside); err == nil {
			x.Left = st.Left
		}
	}
}

// leftIn gives how many processes of each exec live, by its id inside, of a
// sandbox that runs. Nothing is woken for it.
func (e *Engine) leftIn(ctx context.Context, b *box) map[string]int {
	if b == nil {
		return nil
	}
	u := b.take()
	if u == nil {
		return nil
	}
	defer u.release()
	ctx, cancel := context.WithTimeout(ctx, leftWithin)
	defer cancel()
	client, err := u.gen.speak(ctx)
	if err != nil {
		return nil
	}
	list, err := client.Execs(ctx)
	if err != nil {
		return nil
	}
	left := make(map[string]int, len(list))
	for _, st := range list {
		left[st.ID] = st.Left
	}
	return left
}
