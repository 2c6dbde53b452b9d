//go:build linux

package approval

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
)

const patience = 30 * time.Second

// TestMain is also the process that asks and is killed.
func TestMain(m *testing.M) {
	if home := os.Getenv("ASK_AND_WAIT"); home != "" {
		d, err := Open(home)
		if err == nil {
			_, err = d.Put(question())
		}
		fmt.Println("asked", err)
		select {}
	}
	os.Exit(m.Run())
}

func question() Question {
	return Question{Sandbox: "s", What: "GET https://x.test/", Host: "x.test", Port: 443, Digest: "sha256:1", Until: time.Now().Add(patience)}
}

func desk(t *testing.T) (*Desk, string) {
	t.Helper()
	home := t.TempDir()
	d, err := Open(home)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Close)
	return d, home
}

func put(t *testing.T, d *Desk, q Question) *Pending {
	t.Helper()
	p, err := d.Put(q)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func entry(t *testing.T, home, ref string) Entry {
	t.Helper()
	e, err := Find(home, ref)
	if err != nil {
		t.Fatal(err)
	}
	return e
}

func TestAnswerFromElsewhere(t *testing.T) {
	for _, v := range []Verdict{Once, Session, No} {
		d, home := desk(t)
		p := put(t, d, question())
		e := entry(t, home, p.ID[:4])
		if e.What != p.What || e.Answer != nil || e.Digest != p.Digest {
			t.Errorf("%+v", e)
		}
		if fi, err := os.Stat(filepath.Join(home, "approvals", p.ID+".json")); err != nil || fi.Mode().Perm() != 0o600 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		if fi, err := os.Stat(filepath.Join(home, "approvals")); err != nil || fi.Mode().Perm() != 0o700 {
			t.Errorf("%v, %v", fi.Mode(), err)
		}
		if err := Decide(home, e, v); err != nil {
			t.Fatal(err)
		}
		if a := p.Wait(t.Context()); a.Verdict != v || a.Via != "approvals" || a.By == "" {
			t.Errorf("%+v", a)
		}
	}
}

// Of many that answer at once, one has answered, and the others hear who.
func TestOneWinner(t *testing.T) {
	d, home := desk(t)
	p := put(t, d, question())
	e := entry(t, home, p.ID)
	const many = 16
	var all sync.WaitGroup
	errs := make(chan error, many)
	verdicts := make(chan Verdict, many)
	for i := range many {
		v := []Verdict{Once, Session, No}[i%3]
		all.Go(func() {
			err := Decide(home, e, v)
			if err == nil {
				verdicts <- v
			}
			errs <- err
		})
	}
	all.Wait()
	close(errs)
	if len(verdicts) != 1 {
		t.Fatalf("%d have answered", len(verdicts))
	}
	if a, v := p.Wait(t.Context()), <-verdicts; a.Verdict != v {
		t.Errorf("%v answered, and %v arrived", v, a.Verdict)
	}
	for err := range errs {
		if err != nil && (bailey.CodeOf(err) != bailey.CodeConflict || !strings.Contains(err.Error(), p.answer.By)) {
			t.Error(err)
		}
	}
}

func TestTooLate(t *testing.T) {
	d, home := desk(t)
	for name, c := range map[string]struct {
		end  func(p *Pending, e Entry)
		want string
	}{
		"after a no":  {func(_ *Pending, e Entry) { Decide(home, e, No) }, "has said no"},
		"after a yes": {func(p *Pending, _ Entry) { p.Answer(Once, "terminal") }, "allowed it once"},
		"after its time": {func(p *Pending, _ Entry) {
			p.Until = time.Now()
			p.Wait(context.Background())
		}, "nobody answered in time"},
		"withdrawn": {func(p *Pending, _ Entry) {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			p.Wait(ctx)
		}, "withdrawn"},
	} {
		t.Run(name, func(t *testing.T) {
			p := put(t, d, question())
			e := entry(t, home, p.ID)
			c.end(p, e)
			<-p.Done()
			before := p.answer
			for _, v := range []Verdict{Once, No} {
				err := Decide(home, e, v)
				if bailey.CodeOf(err) != bailey.CodeConflict || !strings.Contains(err.Error(), c.want) {
					t.Errorf("%v", err)
				}
			}
			if a := p.Wait(t.Context()); a != before {
				t.Errorf("%+v became %+v", before, a)
			}
		})
	}
}

// Once its time is up nobody can say yes, even before the asking process acts.
func TestExpiredIsNoQuestion(t *testing.T) {
	d, home := desk(t)
	q := question()
	q.Until = time.Now()
	p := put(t, d, q)
	if err := Decide(home, entry(t, home, p.ID), Once); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Error(err)
	}
	if a := p.Wait(t.Context()); a.Verdict != Expired {
		t.Errorf("%+v", a)
	}
}

// An answer to another question than the one that is asked is none.
func TestAnotherDigest(t *testing.T) {
	d, home := desk(t)
	p := put(t, d, question())
	e := entry(t, home, p.ID)
	e.Digest = "sha256:2"
	if err := Decide(home, e, Once); bailey.CodeOf(err) != bailey.CodeConflict {
		t.Error(err)
	}
	// Past Decide, too.
	if err := link(d.dir, p.ID, Answer{Verdict: Session, Digest: "sha256:2"}); err != nil {
		t.Fatal(err)
	}
	if a := p.Wait(t.Context()); a.Verdict != No {
		t.Errorf("%+v", a)
	}
}

func TestGarbledAnswerIsNo(t *testing.T) {
	d, _ := desk(t)
	p := put(t, d, question())
	if err := os.WriteFile(filepath.Join(d.dir, "x"), []byte(`{"verdict":"once"`), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Link(filepath.Join(d.dir, "x"), d.path(p.ID, answerSuffix)); err != nil {
		t.Fatal(err)
	}
	if a := p.Wait(t.Context()); a.Verdict != No {
		t.Errorf("%+v", a)
	}
}

// What a killed process has left is seen to be that.
func TestKilledAsker(t *testing.T) {
	home := t.TempDir()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), "ASK_AND_WAIT="+home)
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	said := make([]byte, 64)
	n, err := out.Read(said)
	if !strings.HasPrefix(string(said[:n]), "asked <nil>") {
		t.Fatalf("%q, %v", said[:n], err)
	}
	list, err := List(home)
	if err != nil || len(list) != 1 {
		t.Fatalf("%+v, %v", list, err)
	}
	cmd.Process.Kill()
	cmd.Wait()
	if err := Decide(home, list[0], Once); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Errorf("answered: %v", err)
	}
	if list, err := List(home); err != nil || len(list) != 0 {
		t.Errorf("%+v, %v", list, err)
	}
	if names, err := readNames(filepath.Join(home, "approvals")); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
}

func TestCloseLeavesNothing(t *testing.T) {
	d, home := desk(t)
	answered, open := put(t, d, question()), put(t, d, question())
	answered.Answer(No, "terminal")
	e := entry(t, home, open.ID)
	d.Close()
	if a := open.Wait(t.Context()); a.Verdict != Withdrawn {
		t.Errorf("%+v", a)
	}
	if err := Decide(home, e, Once); bailey.CodeOf(err) != bailey.CodeNotFound {
		t.Error(err)
	}
	if names, err := readNames(filepath.Join(home, "approvals")); err != nil || len(names) != 0 {
		t.Errorf("%v, %v", names, err)
	}
	if _, err := d.Put(question()); err == nil {
		t.Error("asked after the end")
	}
}

// Answered questions stay for those who come too late, but not all of them.
func TestKeptAreBounded(t *testing.T) {
	d, home := desk(t)
	for range maxKept + 10 {
		put(t, d, question()).Answer(No, "terminal")
	}
	if list, err := List(home); err != nil || len(list) != maxKept {
		t.Errorf("%d, %v", len(list), err)
	}
}

func TestFind(t *testing.T) {
	d, home := desk(t)
	q := question()
	q.ID = "aaaaaaaaaa"
	put(t, d, q)
	q.ID = "aaaaaaaaab"
	put(t, d, q)
	for ref, code := range map[string]bailey.Code{"aaaaaaaaab": "", "aaa": bailey.CodeUsage, "": bailey.CodeNotFound, "../x": bailey.CodeNotFound, "zz": bailey.CodeNotFound} {
		if _, err := Find(home, ref); bailey.CodeOf(err) != code && (code != "" || err != nil) {
			t.Errorf("%q: %v", ref, err)
		}
	}
}

func TestWatch(t *testing.T) {
	d, home := desk(t)
	enough := errors.New("enough")
	var p *Pending
	seen := ""
	late := time.AfterFunc(patience, d.Close)
	defer late.Stop()
	err := Watch(t.Context(), home, func(list []Entry) error {
		switch {
		case p == nil:
			p = put(t, d, question())
		case len(list) == 1 && list[0].Answer == nil && seen == "":
			seen = "open"
			go p.Answer(Once, "terminal")
		case len(list) == 1 && list[0].Answer != nil:
			seen += " answered"
			return enough
		}
		return nil
	})
	if !errors.Is(err, enough) || seen != "open answered" {
		t.Errorf("%q, %v", seen, err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	if err := Watch(ctx, home, func([]Entry) error { cancel(); return nil }); err != nil {
		t.Error(err)
	}
}
