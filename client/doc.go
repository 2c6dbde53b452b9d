// Package client speaks to Bailey's daemon: sandboxes that stay, from Go.
//
//	c, err := client.New(client.Options{}) // the daemon of this machine
//	if err != nil { … }
//	defer c.Close()
//	sandbox, err := c.Create(ctx, api.SandboxSpec{Image: "docker.io/library/python:3.13"})
//	if err != nil { … }
//	defer sandbox.Delete(ctx)
//	result, err := sandbox.Run(ctx, api.ExecSpec{Args: []string{"python3", "-c", "print(6*7)"}})
//
// What a request says and what an answer tells are the types of package api.
//
// # Nothing is lost on the way
//
// A connection may drop and the daemon may be restarted under a call. A call
// that can be made twice is then made again: a create, because it has an
// idempotency key, and an exec, because the client chooses its id. Output is
// read by offset, so that what follows a break goes on at the very byte where it
// stopped; see [Exec.Output]. Options.Patience says how long a daemon may be away.
//
//	exec, err := sandbox.Start(ctx, api.ExecSpec{Args: []string{"make", "test"}})
//	err = exec.Copy(ctx, os.Stdout, os.Stderr) // goes on through restarts
//	info, err := exec.Wait(ctx)                // *info.ExitCode, info.End
//
// Another program, or this one tomorrow, comes back to it by its id:
//
//	exec = c.Sandbox(id).Exec(execID)
//
// # Errors
//
// Every failure is a [*bailey.Error] with a stable code, what failed, why, and
// what to do about it:
//
//	if bailey.CodeOf(err) == bailey.CodeSandboxRestarted { … }
//
// A command that ends with a status other than 0 is no error.
//
// # Without a daemon
//
// Package embedded has sandboxes inside the caller's own process, which end with
// it: [github.com/bailey-sandbox/bailey/embedded].
package client
