package run

import (
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// awaitStamp returns when a file that is changed from now on has a later change
// time than the record's start. Linux stamps files with a clock that lags behind
// by up to a tick of 10 ms. Since Linux 6.13 some file systems stamp finely a
// file that somebody has looked at, as whoever changes a file through an overlay
// has (Documentation/filesystems/multigrain-ts.rst); on the others the tick has
// to pass. A sandbox that is made anew takes longer than that by itself.
func (h *Host) awaitStamp(rec folder.Record) {
	if !slices.ContainsFunc(rec.Roots, func(r folder.Root) bool { return !finelyStamped(r.Path) }) {
		return
	}
	for {
		var ts unix.Timespec
		if unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts) != nil || !time.Unix(ts.Unix()).Before(rec.Started) {
			return
		}
		// Not long: at most a tick. A clock that is set back must not hold us.
		if time.Since(rec.Started) > 20*time.Millisecond {
			return
		}
		time.Sleep(500 * time.Microsecond)
	}
}

// finelyStamped says whether path lies on a file system with multigrain time
// stamps: those that have FS_MGTIME in Linux 6.13.
func finelyStamped(path string) bool {
	var st unix.Statfs_t
	if unix.Statfs(path, &st) != nil {
		return false
	}
	switch int64(st.Type) {
	case unix.EXT4_SUPER_MAGIC, unix.XFS_SUPER_MAGIC, unix.BTRFS_SUPER_MAGIC, unix.TMPFS_MAGIC:
	default:
		return false
	}
	var un unix.Utsname
	if unix.Uname(&un) != nil {
		return false
	}
	return atLeast(unix.ByteSliceToString(un.Release[:]), 6, 13)
}

// atLeast compares a kernel release such as 6.12.3-amd64 with a version.
func atLeast(release string, major, minor int) bool {
	first, rest, _ := strings.Cut(release, ".")
	second, _, _ := strings.Cut(rest, ".")
	if i := strings.IndexFunc(second, func(r rune) bool { return r < '0' || r > '9' }); i >= 0 {
		second = second[:i]
	}
	a, err1 := strconv.Atoi(first)
	b, err2 := strconv.Atoi(second)
	return err1 == nil && err2 == nil && (a > major || a == major && b >= minor)
}
