package linux

import (
	"os"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/driver"
)

// LayerIDs gives how the owners of files in a sandbox's layers, as they lie on
// disk, are those inside: ranges of {first on disk, first inside, count}. None
// means that they are the same, as where root's mounts map them. hostIDs is as in
// [driver.Overlay].
func LayerIDs(level bailey.Isolation, u driver.User, hostIDs bool) (uids, gids [][3]int) {
	if os.Geteuid() != 0 {
		if level.OwnRoot() {
			if sub, ok := subordinates(); ok {
				return onDisk(sub.uids.lines(u.UID, os.Geteuid())), onDisk(sub.gids.lines(u.GID, os.Getegid()))
			}
		}
		return [][3]int{{os.Geteuid(), u.UID, 1}}, [][3]int{{os.Getegid(), u.GID, 1}}
	}
	if !hostIDs {
		return nil, nil
	}
	return exchanged(u.UID, u.HostUID), exchanged(u.GID, u.HostGID)
}

func onDisk(m idMap) (list [][3]int) {
	for _, e := range m {
		list = append(list, [3]int{e.to, e.from, e.count})
	}
	return list
}

// exchanged is rangeMap seen from the disk: the sandbox's user and the host's owner
// stand for each other.
func exchanged(inside, host int) [][3]int {
	if inside == host {
		return nil
	}
	return onDisk(func() (m idMap) {
		for _, e := range rangeMap(0, inside, host) {
			m = append(m, mapping{e.to, e.from, e.count})
		}
		return m
	}())
}
