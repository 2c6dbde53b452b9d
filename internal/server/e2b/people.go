package e2b

import (
	"bufio"
	"bytes"
	"context"
	"encoding/base64"
	"fmt"
	"io"
	"math"
	"path"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/bailey-sandbox/bailey/api"
)

// account is a user inside a sandbox.
type account struct {
	name     string
	uid, gid uint32
	home     string
	own      bool // the sandbox's own, whom commands run as that say nothing else
}

// people are the accounts of sandboxes, as they were read last.
type people struct {
	mu    sync.Mutex
	boxes map[string]*crowd
}

// crowd are the accounts of one sandbox in one generation.
type crowd struct {
	read   time.Time
	users  []account
	groups map[uint32]string
	own    uint32 // id of the sandbox's own user
}

const (
	maxCrowds   = 1000
	maxAccounts = 1 << 20 // bytes of a list of accounts
	fresh       = 2 * time.Second
	probePrefix = "e2b-probe"
)

// probe prints the id that a command runs as, with nothing but a shell.
const probe = `while read -r k v r; do case $k in Uid:) echo "$v"; break;; esac; done </proc/self/status`

// crowd gives the accounts of the sandbox, which may be some time old.
func (c *call) crowd(ctx context.Context, old time.Duration) (*crowd, error) {
	p := &c.s.people
	key := c.box.ID + "." + strconv.FormatInt(c.box.Generation, 10)
	p.mu.Lock()
	was := p.boxes[key]
	p.mu.Unlock()
	if was != nil && time.Since(was.read) < old {
		return was, nil
	}
	now := &crowd{groups: map[uint32]string{}}
	for _, f := range c.accounts(ctx, "/etc/passwd", 6) {
		uid, uerr := strconv.ParseUint(f[2], 10, 32)
		gid, gerr := strconv.ParseUint(f[3], 10, 32)
		if uerr == nil && gerr == nil {
			now.users = append(now.users, account{name: f[0], uid: uint32(uid), gid: uint32(gid), home: f[5]})
		}
	}
	for _, f := range c.accounts(ctx, "/etc/group", 3) {
		if gid, err := strconv.ParseUint(f[2], 10, 32); err == nil {
			now.groups[uint32(gid)] = f[0]
		}
	}
	if was != nil {
		now.own = was.own
	} else {
		var err error
		if now.own, err = c.probe(ctx); err != nil {
			return nil, err
		}
	}
	for i := range now.users {
		now.users[i].own = now.users[i].uid == now.own
	}
	now.read = time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.boxes == nil || len(p.boxes) >= maxCrowds {
		p.boxes = map[string]*crowd{}
	}
	p.boxes[key] = now
	return now, nil
}

// accounts reads the lines of a file like passwd(5) with at least so many fields. One
// that cannot be read has none.
func (c *call) accounts(ctx context.Context, name string, fields int) (list [][]string) {
	f, _, err := c.s.engine.ReadFile(ctx, c.who, c.box.ID, name, 0, maxAccounts)
	if err != nil {
		return nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAccounts))
	if err != nil {
		return nil
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if f := strings.Split(lines.Text(), ":"); len(f) >= fields && f[0] != "" {
			list = append(list, f)
		}
	}
	return list
}

// probe finds out who commands run as that say nothing.
func (c *call) probe(ctx context.Context) (uint32, error) {
	id := fmt.Sprintf("%s.%d", probePrefix, c.box.Generation)
	if _, err := c.s.engine.StartExec(ctx, c.who, c.box.ID, api.ExecSpec{ID: id, Args: []string{probe}, Shell: true, Timeout: api.Duration(10 * time.Second)}); err != nil {
		return 0, err
	}
	var text []byte
	err := c.s.engine.Output(ctx, c.who, c.box.ID, id, map[api.Stream]int64{api.Stderr: math.MaxInt64}, true, func(ev api.OutputEvent) error {
		if len(text) < 100 {
			text = append(text, ev.Data...)
		}
		return nil
	})
	if err != nil {
		return 0, err
	}
	n, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 32)
	if err != nil {
		return 0, nil // without a shell; root is what images without a user have
	}
	return uint32(n), nil
}

// account gives the user of a name; "" is the sandbox's own.
func (c *call) account(ctx context.Context, name string) (account, error) {
	for _, old := range []time.Duration{time.Hour, fresh} {
		p, err := c.crowd(ctx, old)
		if err != nil {
			return account{}, err
		}
		for _, a := range p.users {
			if name == "" && a.own || name != "" && a.name == name {
				return a, nil
			}
		}
		if name == "" {
			return account{name: strconv.FormatUint(uint64(p.own), 10), uid: p.own, gid: p.own, home: "/", own: true}, nil
		}
	}
	return account{}, connectErrorf("unauthenticated", "invalid username: '%s'", name)
}

// names gives the names of a file's owner and group, or their numbers.
func (c *call) names(ctx context.Context, uid, gid uint32) (owner, group string) {
	owner, group = strconv.FormatUint(uint64(uid), 10), strconv.FormatUint(uint64(gid), 10)
	p, err := c.crowd(ctx, time.Minute)
	if err != nil {
		return owner, group
	}
	for _, a := range p.users {
		if a.uid == uid {
			owner = a.name
			break
		}
	}
	if g, ok := p.groups[gid]; ok {
		group = g
	}
	return owner, group
}

// user gives who an RPC is for: the name in basic authentication, without a password.
func (c *call) user() (account, error) {
	name := ""
	if text, ok := strings.CutPrefix(c.r.Header.Get("Authorization"), "Basic "); ok {
		if b, err := base64.StdEncoding.DecodeString(text); err == nil {
			name, _, _ = strings.Cut(string(b), ":")
		}
	}
	return c.account(c.ctx(), name)
}

// resolve makes a path of a client's absolute: ~ and relative ones begin at home.
func (a account) resolve(p string) (string, error) {
	if strings.IndexByte(p, 0) >= 0 || len(p) > 4096 {
		return "", connectErrorf("invalid_argument", "the path is too long, or has a NUL byte")
	}
	switch {
	case p == "" || p == "~":
		return a.home, nil
	case strings.HasPrefix(p, "~/"):
		return path.Join(a.home, p[2:]), nil
	case strings.HasPrefix(p, "~"):
		return "", connectErrorf("invalid_argument", "cannot expand '%s': homes of other users are not looked up", p)
	case path.IsAbs(p):
		return path.Clean(p), nil
	}
	return path.Join("/", a.home, p), nil
}
