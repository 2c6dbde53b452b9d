// Package workspace decides how a sandbox sees the folder a person stands in,
// and prepares that view.
//
// New makes a Plan: which host folders (roots) are seen copy-on-write at
// their own paths, and for each whether by an overlay or by a full copy. A
// folder that is too much of the machine is refused. Where neither way can
// show the folder whole, that is an error with the reason: a partial view
// would make a sandbox believe that files are gone.
//
// Plan.Prepare makes the layers in a run's folder. It reads the roots, writes
// below the run's folder only, and mounts nothing: the driver does, with
// redirect_dir=off (redirect_dir=nofollow where userxattr is set, since the
// kernel refuses off beside it), metacopy=off and index=off, so that an upper
// layer holds whole files, whiteouts and opaque marks and nothing else.
package workspace
