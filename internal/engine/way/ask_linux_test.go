package way

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/approval"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
)

const askRule = "    - {name: api, action: ask, hosts: [api.test], methods: [GET], PORT}\n"

// question waits until one is put.
func (y *yard) question() control.Question {
	y.t.Helper()
	select {
	case q := <-y.asked:
		return q
	case <-time.After(patience):
		y.t.Fatal("nothing is asked")
		return control.Question{}
	}
}

func (y *yard) answer(id string, v approval.Verdict) {
	y.t.Helper()
	e, err := approval.Find(y.home, id)
	if err == nil {
		err = approval.Decide(y.home, e, v)
	}
	if err != nil {
		y.t.Fatal(err)
	}
}

// left waits until nobody waits for the answer to a question: its file is not locked.
func (y *yard) left(id string) {
	y.t.Helper()
	f, err := os.OpenFile(filepath.Join(y.home, "approvals", id+".json"), os.O_RDWR, 0)
	if err != nil {
		y.t.Fatal(err)
	}
	defer f.Close()
	y.eventually("the question is left", func() bool {
		lock := unix.Flock_t{Type: unix.F_WRLCK}
		err := unix.FcntlFlock(f.Fd(), unix.F_OFD_GETLK, &lock)
		return err == nil && lock.Type == unix.F_UNLCK
	})
}

// nothingAsked says that no question is open.
func (y *yard) nothingAsked() {
	y.t.Helper()
	list, err := approval.List(y.home)
	if err != nil || len(list) > 0 || len(y.asked) > 0 {
		y.t.Errorf("open are %+v, %v", list, err)
	}
}

// TestQuestionsOutliveTheDaemon: what was asked before gate or daemon died is
// answered by its file, once, or asked again; and a yes for the session holds in
// the next gate.
func TestQuestionsOutliveTheDaemon(t *testing.T) {
	y := newYard(t)
	o := Opening{Sandbox: "one", Lineage: "family", Policy: y.policy(askRule), Ask: control.Ask{Timeout: time.Hour}}
	s := y.open(o, nil)
	api := s.lookup(t, "api.test")
	ended := make(chan error, 8)
	request := func() {
		go func() {
			code, _, err := s.get(api, "api.test", "/", "")
			if err == nil && code != 200 { // denied: a gate that ends may still say so
				err = fmt.Errorf("answered with %d", code)
			}
			ended <- err
		}()
	}
	request()
	q := y.question()
	if used, err := y.ways.Used(t.Context()); err != nil || used["one"].Asking != 1 {
		t.Errorf("%+v, %v", used, err)
	}
	y.kill() // the act fails with its stream, the question stays
	if err := <-ended; err == nil {
		t.Fatal("answered by nobody")
	}
	y.left(q.ID) // else the answer is taken for the act that has failed
	y.answer(q.ID, approval.Once)
	request()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	y.nothingAsked()
	request() // it was for one act
	q = y.question()
	// Now the daemon dies, and nobody answers until it is asked again.
	y.ways.Shutdown()
	if err := <-ended; err == nil {
		t.Fatal("answered by nobody")
	}
	if list, err := approval.List(y.home); err != nil || len(list) != 1 || list[0].ID != q.ID {
		t.Errorf("open are %+v, %v", list, err)
	}
	y.start()
	o.Saved = y.state("one")
	s = y.open(o, s.network)
	request()
	again := y.question()
	if again.ID == q.ID || again.Digest != q.Digest {
		t.Errorf("asked %+v and then %+v", q, again)
	}
	y.answer(again.ID, approval.Session)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	y.eventually("the yes is saved", func() bool { return len(y.state("one")) > len(o.Saved) })
	y.kill()
	request()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	y.nothingAsked()
	if n := y.up.count(); n != 3 {
		t.Errorf("%d requests got out", n)
	}
	// Another policy: it is asked anew.
	if _, err := y.ways.Update(t.Context(), "one", y.policy(askRule+"    - {name: more, hosts: [other.test], PORT}\n")); err != nil {
		t.Fatal(err)
	}
	request()
	y.answer(y.question().ID, approval.Once)
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	y.verify()
}
