// Package embedded runs sandboxes inside the caller's own process: no daemon,
// no root, nothing to start first.
//
//	client, err := embedded.Open(embedded.Options{})
//	if err != nil { … }
//	defer client.Close()
//	sandbox, err := client.Create(ctx, bailey.Spec{Workspace: "."})
//	if err != nil { … }
//	defer sandbox.Close(ctx)
//	result, err := sandbox.Run(ctx, bailey.Command{Args: []string{"go", "test", "./..."}})
//
// A sandbox lives as long as this process holds it and not a moment longer:
// when the process dies, by whatever death, the kernel ends everything inside.
// What a sandbox changed in its workspace is kept in the data folder, and
// `bailey changes` shows it.
//
// Sandboxes need the program bailey-init, which ./scripts/build puts beside
// bailey; Options.Init names it if it lies elsewhere.
package embedded
