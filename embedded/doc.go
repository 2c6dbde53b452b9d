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
// Making a sandbox takes several milliseconds. A program that needs many of one
// kind has them made in advance, and Create then takes one that is ready:
//
//	err = client.Prepare(ctx, spec, 4) // keep four ready; each is used once and replaced
//
// A Spec with an Image, a Template or the level container makes a sandbox with
// a root file system of its own.
//
// Sandboxes need the program bailey-init, which ./scripts/build puts beside
// bailey; Options.Init names it if it lies elsewhere.
// Containers need baileyd as well.
package embedded
