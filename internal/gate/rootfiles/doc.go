// Package rootfiles finds in a sandbox's root file system, mounted or not, the
// files by which programs there trust certificate authorities. Whoever starts a
// gate looks, since the gate itself can open no file any more; what is in the
// files only the gate reads.
//
// A root's content is the image maker's or the sandbox's own: nothing of it is
// trusted, and nothing of it can hold the looker up. The package reads folders of
// roots and nothing else.
package rootfiles

// Root is a sandbox's root file system, as folders of the host; the zero Root is
// the host's own files.
type Root struct {
	// Layers are folders of the host, lowest first, that overlayfs would show as
	// one; of a sandbox that has run its upper folder is the last.
	Layers []string
	// Binds are folders of the host, Source, that are seen at Target.
	Binds []Bind
}

// Bind is a folder of the host that is part of a Root.
type Bind struct{ Source, Target string }
