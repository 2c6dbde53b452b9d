package embedded_test

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/embedded"
)

// initPath is bailey-init and daemonPath baileyd, built once for this package's tests.
var initPath, daemonPath string

func TestMain(m *testing.M) {
	if home, project, ok := strings.Cut(os.Getenv("BAILEY_TEST_HOLD"), ":"); ok {
		holdPrepared(home, project)
		return
	}
	programs := os.Getenv("BAILEY_TEST_PROGRAMS") // built already
	dir := ""
	if programs == "" {
		var err error
		if dir, err = os.MkdirTemp("", "bailey-embedded-"); err != nil {
			panic(err)
		}
		programs = dir
		build := exec.Command("go", "build", "-o", dir+"/", "../cmd/bailey-init", "../cmd/baileyd")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			panic(string(out))
		}
	}
	initPath, daemonPath = filepath.Join(programs, "bailey-init"), filepath.Join(programs, "baileyd")
	code := m.Run()
	if dir != "" {
		os.RemoveAll(dir)
	}
	os.Exit(code)
}

func open(t testing.TB) (*embedded.Client, string) {
	t.Helper()
	home, project := t.TempDir(), t.TempDir()
	os.Chmod(home, 0o700)
	os.WriteFile(filepath.Join(project, "file"), []byte("on the host\n"), 0o644)
	c, err := embedded.Open(embedded.Options{Home: home, Init: initPath, Warm: 1})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Close() })
	return c, project
}

func TestSandboxStays(t *testing.T) {
	ctx := context.Background()
	c, project := open(t)
	s, err := c.Create(ctx, bailey.Spec{Workspace: project, Env: []string{"FOO=spec"}})
	if err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		cmd  bailey.Command
		out  string
		code int
	}{
		{bailey.Command{Args: []string{"sh", "-c", "cat file; echo inside > file; echo $FOO; exit 3"}}, "on the host\nspec\n", 3},
		{bailey.Command{Args: []string{"sh", "-c", "cat file; echo $FOO $BAR; pwd"}, Env: []string{"FOO=own", "BAR=x"}}, "inside\nown x\n" + project + "\n", 0},
		{bailey.Command{Args: []string{"cat"}, Stdin: []byte("a\x00b")}, "a\x00b", 0},
		{bailey.Command{Args: []string{"cat"}}, "", 0},
		{bailey.Command{Args: []string{"pwd"}, Dir: "/"}, "/\n", 0},
	} {
		r, err := s.Run(ctx, tc.cmd)
		if err != nil {
			t.Fatal(tc.cmd.Args, err)
		}
		if string(r.Stdout) != tc.out || r.End.ExitCode != tc.code || r.End.Reason != bailey.EndExit {
			t.Errorf("%q: %q %+v", tc.cmd.Args, r.Stdout, r.End)
		}
	}
	if _, err := s.Run(ctx, bailey.Command{Args: []string{"no-such-command"}}); bailey.CodeOf(err) != bailey.CodeCommandNotFound {
		t.Errorf("a missing command: %v", err)
	}
	if err := s.Close(ctx); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(ctx); err != nil {
		t.Errorf("closing twice: %v", err)
	}
	if b, _ := os.ReadFile(filepath.Join(project, "file")); string(b) != "on the host\n" {
		t.Errorf("the host's file is %q", b)
	}
	if _, err := s.Run(ctx, bailey.Command{Args: []string{"true"}}); bailey.CodeOf(err) != bailey.CodeSandboxLost {
		t.Errorf("after the end: %v", err)
	}
}

func TestRefusals(t *testing.T) {
	ctx := context.Background()
	c, project := open(t)
	for _, n := range []int{-1, 65} {
		if _, err := embedded.Open(embedded.Options{Home: t.TempDir(), Init: initPath, Warm: n}); bailey.CodeOf(err) != bailey.CodeUsage {
			t.Errorf("%d warm sandboxes: %v", n, err)
		}
	}
	for _, tc := range []struct {
		spec bailey.Spec
		code bailey.Code
	}{
		{bailey.Spec{Workspace: "/"}, bailey.CodeWorkspaceRefused},
		{bailey.Spec{Workspace: project, Isolation: bailey.IsolationGVisor}, bailey.CodeIsolationUnavailable},
		{bailey.Spec{Workspace: project, MinIsolation: bailey.IsolationMicroVM}, bailey.CodeIsolationUnavailable},
		{bailey.Spec{Workspace: project, Isolation: bailey.IsolationProcess, MinIsolation: bailey.IsolationContainer}, bailey.CodeUsage},
		{bailey.Spec{Workspace: project, Mounts: []string{"/:/host"}}, bailey.CodeHostRootEquivalent},
	} {
		if _, err := c.Create(ctx, tc.spec); bailey.CodeOf(err) != tc.code {
			t.Errorf("%+v: %v, want code %s", tc.spec, err, tc.code)
		}
	}
}

func BenchmarkExec(b *testing.B) {
	ctx := context.Background()
	c, project := open(b)
	s, err := c.Create(ctx, bailey.Spec{Workspace: project})
	if err != nil {
		b.Fatal(err)
	}
	defer s.Close(ctx)
	for b.Loop() {
		if _, err := s.Run(ctx, bailey.Command{Args: []string{"/bin/true"}}); err != nil {
			b.Fatal(err)
		}
	}
}

func ExampleClient() {
	ctx := context.Background()
	home, _ := os.MkdirTemp("", "bailey-home-")
	defer os.RemoveAll(home)
	project, _ := os.MkdirTemp("", "project-")
	defer os.RemoveAll(project)
	os.WriteFile(filepath.Join(project, "plan.md"), []byte("the plan"), 0o644)

	client, err := embedded.Open(embedded.Options{Home: home, Init: initPath})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	sandbox, err := client.Create(ctx, bailey.Spec{Workspace: project})
	if err != nil {
		fmt.Println(err)
		return
	}
	result, err := sandbox.Run(ctx, bailey.Command{Args: []string{"sh", "-c", "rm -rf *; ls | wc -l"}})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println("files inside:", strings.TrimSpace(string(result.Stdout)))
	sandbox.Close(ctx)
	files, _ := os.ReadDir(project)
	fmt.Println("files on the host:", len(files))
	// Output:
	// files inside: 0
	// files on the host: 1
}

func ExampleClient_Prepare() {
	ctx := context.Background()
	home, _ := os.MkdirTemp("", "bailey-home-")
	defer os.RemoveAll(home)
	project, _ := os.MkdirTemp("", "project-")
	defer os.RemoveAll(project)

	client, err := embedded.Open(embedded.Options{Home: home, Init: initPath})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()
	spec := bailey.Spec{Workspace: project}
	if err := client.Prepare(ctx, spec, 2); err != nil {
		fmt.Println(err)
		return
	}
	os.WriteFile(filepath.Join(project, "plan.md"), []byte("made after Prepare"), 0o644)
	for range 3 { // the third may find none ready, and is made then
		sandbox, err := client.Create(ctx, spec)
		if err != nil {
			fmt.Println(err)
			return
		}
		result, err := sandbox.Run(ctx, bailey.Command{Args: []string{"sh", "-c", "cat plan.md; rm plan.md"}})
		if err != nil {
			fmt.Println(err)
			return
		}
		fmt.Println(string(result.Stdout))
		sandbox.Close(ctx)
	}
	// Output:
	// made after Prepare
	// made after Prepare
	// made after Prepare
}
