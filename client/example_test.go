package client_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"strings"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/api"
	"github.com/bailey-sandbox/bailey/client"
)

// A sandbox is made, runs a command, and is deleted.
func Example() {
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sandbox, err := c.Create(ctx, api.SandboxSpec{Labels: map[string]string{"task": "42"}})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Delete(ctx)
	result, err := sandbox.Run(ctx, api.ExecSpec{Args: []string{"echo", "hello"}})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%s%s\n", result.Out, result.End)
	// Output:
	// hello
	// exited with status 0
}

// A command goes on whoever listens; its output is read from any offset, by any
// program that knows its id.
func ExampleExec_Output() {
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sandbox, err := c.Create(ctx, api.SandboxSpec{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Delete(ctx)
	if _, err := sandbox.Start(ctx, api.ExecSpec{ID: "tests", Args: []string{"echo", "all", "tests", "pass"}}); err != nil {
		log.Fatal(err)
	}

	exec := c.Sandbox(sandbox.Ref()).Exec("tests") // in another program
	from := map[api.Stream]int64{api.Stdout: 4}    // which has seen four bytes
	end, err := exec.Output(ctx, from, func(ev api.OutputEvent) error {
		fmt.Printf("%d: %s", ev.Offset, ev.Data)
		return nil
	})
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(*end.ExitCode)
	// Output:
	// 4: tests pass
	// 0
}

// A program's streams are joined with a command's.
func ExampleExec_Attach() {
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sandbox, err := c.Create(ctx, api.SandboxSpec{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Delete(ctx)
	exec, err := sandbox.Start(ctx, api.ExecSpec{Args: []string{"cat"}, Stdin: true})
	if err != nil {
		log.Fatal(err)
	}
	if _, err := exec.Attach(ctx, client.Attachment{Stdin: strings.NewReader("in and out\n"), Stdout: os.Stdout}); err != nil {
		log.Fatal(err)
	}
	// Output: in and out
}

// Files go in and out at any size; what is written is there as a whole or not at
// all, and its hash is compared.
func ExampleFiles() {
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	sandbox, err := c.Create(ctx, api.SandboxSpec{})
	if err != nil {
		log.Fatal(err)
	}
	defer sandbox.Delete(ctx)
	written, err := sandbox.Files().Write(ctx, "/data/input.csv", strings.NewReader("a,b\n1,2\n"), 0o644)
	if err != nil {
		log.Fatal(err)
	}
	content, err := sandbox.Files().ReadFile(ctx, "/data/input.csv")
	if err != nil {
		log.Fatal(err)
	}
	fmt.Printf("%d bytes, %q\n", written.Size, content)
	// Output: 8 bytes, "a,b\n1,2\n"
}

// Failures have codes.
func Example_errors() {
	ctx := context.Background()
	c, err := client.New(client.Options{})
	if err != nil {
		log.Fatal(err)
	}
	defer c.Close()
	_, err = c.Sandbox("nobody").Info(ctx)
	fmt.Println(bailey.CodeOf(err) == bailey.CodeNotFound)
	// Output: true
}
