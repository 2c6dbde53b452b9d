package values

import (
	"math"
	"strconv"
	"strings"
	"time"

	"github.com/bailey-sandbox/bailey"
)

// Bytes is a flag for a number of bytes: 64M, 1.5GiB, 4096. K, M, G and T
// are powers of 1024, with or without B or iB behind.
type Bytes struct{ To *int64 }

// String implements pflag.Value.
func (v Bytes) String() string {
	if v.To == nil || *v.To == 0 {
		return ""
	}
	return strconv.FormatInt(*v.To, 10)
}

// Type implements pflag.Value.
func (v Bytes) Type() string { return "BYTES" }

// Set implements pflag.Value.
func (v Bytes) Set(s string) error {
	n, err := ParseBytes(s)
	if err == nil {
		*v.To = n
	}
	return err
}

// ParseBytes reads a number of bytes greater than 0.
func ParseBytes(s string) (int64, error) {
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

// Duration is a flag for a time: 90s, 10m, 1h30m, or a number of seconds.
type Duration struct{ To *time.Duration }

// String implements pflag.Value.
func (v Duration) String() string {
	if v.To == nil || *v.To == 0 {
		return ""
	}
	return v.To.String()
}

// Type implements pflag.Value.
func (v Duration) Type() string { return "DURATION" }

// Set implements pflag.Value.
func (v Duration) Set(s string) error {
	d, err := time.ParseDuration(s)
	if err != nil {
		if f, ferr := strconv.ParseFloat(s, 64); ferr == nil && f < 1e9 && f > 0 {
			d, err = time.Duration(f*float64(time.Second)), nil
		}
	}
	if err != nil || d <= 0 {
		return bailey.Errorf(bailey.CodeUsage, "read the time "+strconv.Quote(s), "write it as 90s, 10m or 1h30m; leave it out for no limit", "it is not a time above zero")
	}
	*v.To = d
	return nil
}

// Isolation is a flag for an isolation level.
type Isolation struct{ To *bailey.Isolation }

// String implements pflag.Value.
func (v Isolation) String() string {
	if v.To == nil {
		return ""
	}
	return v.To.String()
}

// Type implements pflag.Value.
func (v Isolation) Type() string { return "LEVEL" }

// Set implements pflag.Value.
func (v Isolation) Set(s string) error {
	l, err := bailey.ParseIsolation(s)
	if err == nil {
		*v.To = l
	}
	return err
}
