package build

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/image/view"
)

// maxAccounts bounds /etc/passwd and /etc/group of an image in bytes.
const maxAccounts = 4 << 20

const maxID = 65535

// account is what an image knows about a user.
type account struct {
	User
	home string
}

// resolveUser finds who USER[:GROUP] is, by numbers or by the names of the image.
func resolveUser(v *view.View, text string) (account, error) {
	user, group, hasGroup := strings.Cut(text, ":")
	if user == "" {
		user = "0"
	}
	a := account{home: "/"}
	uid, numeric := id(user)
	found := false
	each(v, "/etc/passwd", func(f []string) bool {
		if len(f) < 6 {
			return false
		}
		n, ok := id(f[2])
		if !ok || !(f[0] == user || numeric && n == uid) {
			return false
		}
		gid, _ := id(f[3])
		a, found = account{User{n, gid}, f[5]}, true
		return true
	})
	if !found {
		if !numeric {
			return a, fmt.Errorf("the image has no user %q", user)
		}
		if a.UID = uid; uid == 0 {
			a.home = "/root"
		}
	}
	if !hasGroup {
		return a, nil
	}
	gid, numeric := id(group)
	if !numeric {
		found = false
		each(v, "/etc/group", func(f []string) bool {
			if len(f) >= 3 && f[0] == group {
				gid, found = id(f[2])
			}
			return found
		})
		if !found {
			return a, fmt.Errorf("the image has no group %q", group)
		}
	}
	a.GID = gid
	return a, nil
}

func id(s string) (int, bool) {
	n, err := strconv.Atoi(s)
	return n, err == nil && n >= 0 && n <= maxID
}

// each calls f with the fields of each line until it is content.
func each(v *view.View, name string, f func([]string) bool) {
	b, err := v.ReadFile(name, maxAccounts)
	if err != nil {
		return // an image without has numbers only
	}
	for l := range strings.SplitSeq(string(b), "\n") {
		if f(strings.Split(l, ":")) {
			return
		}
	}
}
