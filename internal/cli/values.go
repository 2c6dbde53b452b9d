package cli

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// bytesValue is a flag for a number of bytes: 64M, 1.5GiB, 4096. K, M, G and T
// are powers of 1024, with or without B or iB behind.
type bytesValue struct{ to *int64 }

func (v bytesValue) String() string {
	if v.to == nil || *v.to == 0 {
		return ""
	}
	return strconv.FormatInt(*v.to, 10)
}

func (v bytesValue) Type() string { return "BYTES" }

func (v bytesValue) Set(s string) error {
	n, err := parseBytes(s)
	if err == nil {
		*v.to = n
	}
	return err
}

func parseBytes(s string) (int64, error) {
	bad := bailey.Errorf(bailey.CodeUsage, "read the size "+strconv.Quote(s), "write it as 512M or 2G", "it is not a number of bytes above zero")
	t := strings.ToUpper(strings.TrimSpace(s))
	t = strings.TrimSuffix(strings.TrimSuffix(t, "B"), "I")
	unit := 1.0
	if i := strings.IndexByte("KMGT", last(t)); t != "" && i >= 0 {
		unit = math.Pow(1024, float64(i+1))
		t = t[:len(t)-1]
	}
	f, err := strconv.ParseFloat(t, 64)
	if err != nil || f*unit < 1 || f*unit >= 1<<60 || math.IsNaN(f) {
		return 0, bad
	}
	return int64(f * unit), nil
}

func last(s string) byte {
	if s == "" {
		return 0
	}
	return s[len(s)-1]
}

// durationValue is a flag for a time: 90s, 10m, 1h30m, or a number of seconds.
type durationValue struct{ to *time.Duration }

func (v durationValue) String() string {
	if v.to == nil || *v.to == 0 {
		return ""
	}
	return v.to.String()
}

func (v durationValue) Type() string { return "DURATION" }

func (v durationValue) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		if f, ferr := strconv.ParseFloat(s, 64); ferr == nil && f < 1e9 && f > 0 {
			d, err = time.Duration(f*float64(time.Second)), nil
		}
	}
	if err != nil || d <= 0 {
		return bailey.Errorf(bailey.CodeUsage, "read the time "+strconv.Quote(s), "write it as 90s, 10m or 1h30m; leave it out for no limit", "it is not a time above zero")
	}
	*v.to = d
	return nil
}

// isolationValue is a flag for an isolation level.
type isolationValue struct{ to *bailey.Isolation }

func (v isolationValue) String() string {
	if v.to == nil {
		return ""
	}
	return v.to.String()
}

func (v isolationValue) Type() string { return "LEVEL" }

func (v isolationValue) Set(s string) error {
	l, err := bailey.ParseIsolation(s)
	if err == nil {
		*v.to = l
	}
	return err
}
