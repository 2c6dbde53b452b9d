package approval

import (
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/user"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Entry is a question with its answer, which is nil while there is none.
type Entry struct {
	Question
	Answer *Answer `json:"answer,omitempty"`
}

// List gives the questions of the data folder home whose processes live or will be
// back, oldest first, and removes what killed ones have left.
func List(home string) ([]Entry, error) {
	const what = "list the questions"
	dir, err := folder(home)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	sweep(dir)
	names, err := readNames(dir)
	if err != nil {
		return nil, bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	var list []Entry
	for _, name := range names {
		if id, ok := strings.CutSuffix(name, questionSuffix); ok && validID(id) {
			if e, err := read(dir, id); err == nil {
				list = append(list, e)
			}
		}
	}
	slices.SortFunc(list, func(a, b Entry) int { return a.Asked.Compare(b.Asked) })
	return list, nil
}

func readNames(dir string) ([]string, error) {
	f, err := os.Open(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return f.Readdirnames(-1)
}

func read(dir, id string) (e Entry, err error) {
	if err := readFile(filepath.Join(dir, id+questionSuffix), &e.Question); err != nil {
		return e, err
	}
	var a Answer
	if err := readFile(filepath.Join(dir, id+answerSuffix), &a); err == nil {
		e.Answer = &a
	} else if !errors.Is(err, os.ErrNotExist) {
		return e, err
	}
	if e.ID != id {
		return e, errors.New("it has another id than its file")
	}
	return e, nil
}

// Find gives the question that ref names: its id or the beginning of it.
func Find(home, ref string) (Entry, error) {
	what := "find the question " + strconv.Quote(ref)
	list, err := List(home)
	if err != nil {
		return Entry{}, err
	}
	var found []Entry
	for _, e := range list {
		if ref != "" && strings.HasPrefix(e.ID, ref) {
			found = append(found, e)
		}
	}
	switch len(found) {
	case 1:
		return found[0], nil
	case 0:
		return Entry{}, bailey.Errorf(bailey.CodeNotFound, what, "`bailey approvals ls` lists those that are open, `bailey audit show` what became of others",
			"there is none: it was answered, or the run that asked has ended")
	}
	return Entry{}, bailey.Errorf(bailey.CodeUsage, what, "write more of the id", "%d questions begin so", len(found))
}

// Decide answers the question e as it was read. If somebody has answered it
// before, or its time is up, it is an error with code conflict that says so, and
// changes nothing.
func Decide(home string, e Entry, v Verdict) error {
	what := "answer the question " + e.ID
	dir, err := folder(home)
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	late := func(a Answer) error {
		return bailey.Errorf(bailey.CodeConflict, what, "if the command tries again it is asked again, after a no not before a minute is over", "%s", a.said())
	}
	gone := bailey.Errorf(bailey.CodeNotFound, what, "`bailey audit show` says what became of it", "the run that asked has ended")
	now, err := read(dir, e.ID)
	switch {
	case errors.Is(err, os.ErrNotExist):
		return gone
	case err != nil:
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	case now.Digest != e.Digest:
		return bailey.Errorf(bailey.CodeConflict, what, "look at it again: bailey approvals show "+e.ID, "it is another question now")
	case now.Answer != nil:
		return late(*now.Answer)
	case !time.Now().Before(now.Until):
		return late(Answer{Verdict: Expired, At: now.Until})
	}
	a := Answer{Verdict: v, Digest: e.Digest, By: userName(), Via: "approvals", At: time.Now()}
	err = link(dir, e.ID, a)
	if errors.Is(err, os.ErrExist) {
		if now, err = read(dir, e.ID); err == nil && now.Answer != nil {
			return late(*now.Answer)
		}
		return gone
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	if !held(filepath.Join(dir, e.ID+questionSuffix)) && !e.Durable {
		sweep(dir)
		return gone
	}
	return nil
}

// link writes an answer, unless there is one: os.ErrExist.
func link(dir, id string, a Answer) error {
	text, err := json.Marshal(a)
	if err != nil {
		return err
	}
	fresh := filepath.Join(dir, newPrefix+NewID())
	defer os.Remove(fresh)
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Link(fresh, filepath.Join(dir, id+answerSuffix))
}

// staleAfter is how old a file without a name of its own is before it counts as
// left by a process that was killed.
const staleAfter = time.Minute

// sweep removes what killed processes have left. What cannot be removed is left
// to the next one.
func sweep(dir string) {
	names, err := readNames(dir)
	if err != nil {
		return
	}
	for _, name := range names {
		path := filepath.Join(dir, name)
		if strings.HasPrefix(name, newPrefix) {
			if fi, err := os.Lstat(path); err == nil && time.Since(fi.ModTime()) > staleAfter && !held(path) {
				os.Remove(path)
			}
			continue
		}
		id, question := strings.CutSuffix(name, questionSuffix)
		if !question {
			id = strings.TrimSuffix(name, answerSuffix)
			question = false
		}
		if !validID(id) || held(filepath.Join(dir, id+questionSuffix)) || waits(dir, id) {
			continue
		}
		os.Remove(filepath.Join(dir, id+questionSuffix))
		os.Remove(filepath.Join(dir, id+answerSuffix))
	}
}

// waits tells that a question, which nobody holds, may be asked again.
func waits(dir, id string) bool {
	e, err := read(dir, id)
	return err == nil && e.Durable && time.Now().Before(e.Until)
}

// Watch calls changed at first and whenever a question comes, is answered or
// goes, until ctx ends or changed gives an error.
func Watch(ctx context.Context, home string, changed func([]Entry) error) error {
	const what = "watch for questions"
	dir, err := folder(home)
	if err == nil {
		err = os.MkdirAll(dir, 0o700)
	}
	var w *watcher
	if err == nil {
		w, err = watchFolder(dir)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
	}
	defer w.close()
	defer context.AfterFunc(ctx, w.close)()
	for {
		list, err := List(home)
		if err != nil {
			return err
		}
		if err := changed(list); err != nil {
			return err
		}
		if err := w.next(); err != nil {
			if ctx.Err() != nil {
				return nil
			}
			return bailey.Errorf(bailey.CodeStorage, what, "", "%w", err)
		}
	}
}

// userName names the user of this process, for the record.
func userName() string {
	id := strconv.Itoa(os.Geteuid())
	if u, err := user.LookupId(id); err == nil {
		return u.Username
	}
	return "uid " + id
}
