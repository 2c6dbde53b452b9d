package execlog

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
)

// The bounds of what is kept of a stream, in bytes.
const (
	DefaultCap = 64 << 20
	MinCap     = 64 << 10
	MaxCap     = 16 << 30
)

// A segment is a file that holds bytes of a stream from an offset on.
type segment struct{ start int64 }

// segmentSize divides what is kept, so that at least seven eighths of the bound
// are there when older bytes were dropped.
func segmentSize(limit int64) int64 { return min(max(limit/8, 4<<10), 8<<20) }

func segmentName(stream string, start int64) string { return fmt.Sprintf("%s.%016x", stream, start) }

// parseSegment gives the start of a segment of the stream.
func parseSegment(stream, name string) (start int64, ok bool) {
	hex, ok := strings.CutPrefix(name, stream+".")
	if !ok || len(hex) != 16 {
		return 0, false
	}
	start, err := strconv.ParseInt(hex, 16, 64)
	return start, err == nil && segmentName(stream, start) == name
}

// find lists the stream's segments and says where the stream ends. Those below
// a hole are of no use and are removed.
func find(dir, stream string) (segs []segment, end int64, err error) {
	entries, err := os.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, 0, nil
	}
	if err != nil {
		return nil, 0, err
	}
	sizes := map[int64]int64{}
	for _, e := range entries {
		start, ok := parseSegment(stream, e.Name())
		if !ok {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, 0, err
		}
		segs = append(segs, segment{start})
		sizes[start] = info.Size()
	}
	sort.Slice(segs, func(i, j int) bool { return segs[i].start < segs[j].start })
	if len(segs) == 0 {
		return nil, 0, nil
	}
	last := len(segs) - 1
	end = segs[last].start + sizes[segs[last].start]
	first := last
	for first > 0 && segs[first-1].start+sizes[segs[first-1].start] == segs[first].start {
		first--
	}
	for _, s := range segs[:first] {
		os.Remove(filepath.Join(dir, segmentName(stream, s.start)))
	}
	return segs[first:], end, nil
}
