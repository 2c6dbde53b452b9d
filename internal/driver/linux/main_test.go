package linux

import (
	"fmt"
	"os"
	"path/filepath"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/driver"
)

// insideVariable tells a test program that it is the command of a sandbox, and
// what it is to do there.
const insideVariable = "BAILEY_TEST_INSIDE"

// insides are the things that a test program does inside. Each gets the
// command's arguments; an error is printed, with status 1.
var insides = map[string]func(args []string) error{}

func TestMain(m *testing.M) {
	if name := os.Getenv(insideVariable); name != "" {
		if err := insides[name](os.Args[1:]); err != nil {
			fmt.Println(err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if os.Getenv(makerVariable) != "" {
		if err := makeAndWait(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	code := m.Run()
	if builtInit != "" {
		os.RemoveAll(filepath.Dir(builtInit))
	}
	os.Exit(code)
}

// insideSpec is a sandbox whose command is this test program.
func insideSpec(t testing.TB, name string, args ...string) driver.Spec {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const at = "/probe"
	spec := smallSpec(t, append([]string{at}, args...)...)
	spec.Env = append(spec.Env, insideVariable+"="+name)
	spec.Root.Places = append(spec.Root.Places, driver.Place{Kind: driver.Bind, Source: program, Target: at, ReadOnly: true, HostIDs: true})
	return spec
}
