package folder

import (
	"time"

	"golang.org/x/sys/unix"
)

// startStamp gives a time that no change before this call is later than, and
// every change after it is. Linux stamps files with a clock that lags behind by up to a
// tick of 10 ms, so the time of day is not enough. Since Linux 6.13
// (Documentation/filesystems/multigrain-ts.rst) a file that somebody has looked
// at gets a fine stamp with its next change, where the lagging one would be the
// same again, and no later stamp of any file is earlier than one that was given; the lock file is made to be that one. Where
// this has no effect, the tick has to pass.
func (r *Run) startStamp() (time.Time, error) {
	var st unix.Stat_t
	var before time.Time
	fd := int(r.lock.Fd())
	// The first change may get the lagging clock's time, if that has moved since
	// the one before; the second cannot get it again.
	for range 2 {
		before = time.Now()
		if err := unix.Fchmod(fd, 0o600); err != nil {
			return time.Time{}, err
		}
		if err := unix.Fstat(fd, &st); err != nil {
			return time.Time{}, err
		}
	}
	stamp := time.Unix(st.Ctim.Unix())
	if after := time.Now(); !stamp.Before(before) && !stamp.After(after) {
		return stamp.Add(-1).UTC(), nil
	}
	start := time.Now()
	for {
		var ts unix.Timespec
		if err := unix.ClockGettime(unix.CLOCK_REALTIME_COARSE, &ts); err != nil {
			return start, err
		}
		// A clock that is set back must not hold us.
		if time.Unix(ts.Unix()).After(start) || time.Since(start) > 20*time.Millisecond {
			return start.UTC(), nil
		}
		time.Sleep(500 * time.Microsecond)
	}
}
