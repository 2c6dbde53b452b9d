package housekeeping

import (
	"bufio"
	_ "embed"
	"os"
	"os/exec"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

//go:embed testdata/bailey.txt
var mayLink string

// TestCommandLineLinks keeps the command line small: what it links is written
// down, and a new line there is a decision.
func TestCommandLineLinks(t *testing.T) {
	var may []string
	for line := range strings.Lines(mayLink) {
		name, _, _ := strings.Cut(line, "#")
		if name = strings.TrimSpace(name); name != "" {
			may = append(may, name)
		}
	}
	n := 0
	for _, p := range list(t, "linux", "-deps", "./cmd/bailey") {
		name := p.ImportPath
		switch {
		case p.Standard && (strings.HasPrefix(name, "internal/") || strings.Contains(name, "/internal/") || strings.HasPrefix(name, "vendor/") || strings.HasSuffix(name, "/internal")):
			continue // what the standard library is made of is its own business
		case strings.HasPrefix(name, module+"/"):
			name = strings.TrimPrefix(name, module)
		}
		n++
		if !slices.Contains(may, name) {
			t.Errorf("cmd/bailey links %s, which internal/housekeeping/testdata/bailey.txt does not list", name)
		}
	}
	if n < 20 {
		t.Errorf("only %d packages were looked at", n)
	}
	for _, never := range []string{
		"net/http", "crypto/tls", "crypto/x509", "text/template", "html/template", "database/sql", "encoding/xml", "go/ast", "plugin", "testing",
		"/internal/image", "/internal/image/unpack", "/internal/engine", "/internal/gate", "/internal/server",
	} {
		if slices.Contains(may, never) {
			t.Errorf("the list holds %s, which must never be there", never)
		}
	}
}

// What one package may allocate before main; generous, and in bytes and counts
// rather than time, so that a slow machine fails nothing.
const (
	initBytes  = 16 << 10
	initAllocs = 128
)

// initExceptions are packages whose start-up costs more, with what they may.
var initExceptions = map[string]struct{ bytes, allocs int }{
	"go.yaml.in/yaml/v3": {40 << 10, 400}, // bailey.yaml; package project says what it costs
	// These compile patterns that few starts use; what they cost must not grow.
	module + "/internal/doctor": {52 << 10, 370},
}

var initLine = regexp.MustCompile(`^init (\S+) @.* ms, .* ms clock, (\d+) bytes, (\d+) allocs$`)

func TestCommandLineStartsLight(t *testing.T) {
	cmd := exec.Command(built(t), "version")
	cmd.Env = append(os.Environ(), "GODEBUG=inittrace=1")
	var trace strings.Builder
	cmd.Stderr = &trace
	if err := cmd.Run(); err != nil {
		t.Fatal(err)
	}
	seen, bytes, allocs := 0, 0, 0
	for lines := bufio.NewScanner(strings.NewReader(trace.String())); lines.Scan(); {
		m := initLine.FindStringSubmatch(lines.Text())
		if m == nil {
			t.Fatalf("this line of the trace was not understood: %q", lines.Text())
		}
		b, _ := strconv.Atoi(m[2])
		n, _ := strconv.Atoi(m[3])
		seen, bytes, allocs = seen+1, bytes+b, allocs+n
		maxBytes, maxAllocs := initBytes, initAllocs
		if e, ok := initExceptions[m[1]]; ok {
			maxBytes, maxAllocs = e.bytes, e.allocs
		}
		if b > maxBytes || n > maxAllocs {
			t.Errorf("%s allocates %d bytes in %d pieces before main; at most %d in %d are allowed", m[1], b, n, maxBytes, maxAllocs)
		}
	}
	if seen < 10 {
		t.Errorf("the trace has only %d packages", seen)
	}
	t.Logf("%d packages allocate %d bytes in %d pieces before main", seen, bytes, allocs)
}
