package engine

import (
	"bufio"
	"bytes"
	"context"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// userOf gives who commands run as that say nothing else: who the spec names, or
// the image. nil is bailey-init's own user.
func (e *Engine) userOf(ctx context.Context, c *guest.Client, r *record) (*guest.User, error) {
	if r.Sandbox.Isolation == bailey.IsolationProcess {
		return nil, nil // there is one user
	}
	name := r.Spec.User
	if name == "" && r.Rootfs != nil {
		name = r.Rootfs.Config.User
	}
	if name == "" || name == "root" || name == "0" || name == "0:0" {
		return nil, nil
	}
	return findUser(ctx, c, name)
}

// maxAccounts bounds what is read of a sandbox's list of accounts, in bytes.
const maxAccounts = 1 << 20

// findUser gives the user that "user[:group]" names inside, each a name or a
// number. Names are looked up in /etc/passwd and /etc/group as they are now; a
// number need not be in there.
func findUser(ctx context.Context, c *guest.Client, s string) (*guest.User, error) {
	const what = "use the user "
	name, group, both := strings.Cut(s, ":")
	var u guest.User
	accounts, err := readAccounts(ctx, c, "/etc/passwd")
	if err != nil {
		return nil, err
	}
	uid, err := strconv.ParseUint(name, 10, 32)
	numeric := err == nil
	found := numeric
	u.UID = uint32(uid)
	login := ""
	for _, f := range accounts {
		id, uerr := strconv.ParseUint(f[2], 10, 32)
		gid, gerr := strconv.ParseUint(f[3], 10, 32)
		if uerr != nil || gerr != nil {
			continue
		}
		if f[0] == name || numeric && id == uid {
			u.UID, u.GID, found, login = uint32(id), uint32(gid), true, f[0]
			break
		}
	}
	if !found || name == "" {
		return nil, bailey.Errorf(bailey.CodeUsage, what+s, "name one of its /etc/passwd, or a number", "there is no such user inside")
	}
	groups, err := readAccounts(ctx, c, "/etc/group")
	if err != nil {
		return nil, err
	}
	if both {
		gid, err := strconv.ParseUint(group, 10, 32)
		found := err == nil
		for _, f := range groups {
			if id, err := strconv.ParseUint(f[2], 10, 32); err == nil && f[0] == group {
				gid, found = id, true
				break
			}
		}
		if !found {
			return nil, bailey.Errorf(bailey.CodeUsage, what+s, "name one of its /etc/group, or a number", "there is no such group inside")
		}
		u.GID = uint32(gid)
		return &u, nil
	}
	for _, f := range groups {
		id, err := strconv.ParseUint(f[2], 10, 32)
		if err == nil && login != "" && len(u.Groups) < guest.MaxGroups && slices.Contains(strings.Split(f[3], ","), login) {
			u.Groups = append(u.Groups, uint32(id))
		}
	}
	return &u, nil
}

// readAccounts reads the lines of a file like passwd(5) that have at least four
// fields. One that is not there has none.
func readAccounts(ctx context.Context, c *guest.Client, path string) ([][]string, error) {
	f, _, err := c.ReadFile(ctx, path, guest.ReadOptions{})
	if err != nil {
		if ctx.Err() != nil || c.Err() != nil {
			return nil, err
		}
		return nil, nil
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxAccounts))
	if err != nil {
		return nil, err
	}
	return parseAccounts(text), nil
}

// parseAccounts reads what a sandbox may have written: what is no account is none.
func parseAccounts(text []byte) (list [][]string) {
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		if f := strings.Split(lines.Text(), ":"); len(f) >= 4 && f[0] != "" {
			list = append(list, f)
		}
	}
	return list
}
