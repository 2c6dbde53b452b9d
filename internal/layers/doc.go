// Package layers keeps the files of sandboxes that stay: what was written over
// read-only ground, sealed into layers when a snapshot is taken, copied when
// processes go on writing, compared, flattened, hashed, exported and imported.
//
// A layer has a fast form, a folder as overlayfs wants it as lower, and a
// canonical one, an OCI layer (whiteouts, attributes, owners as inside), whose
// digest is the layer's content hash. Everything in a layer was written by a
// sandbox and may be hostile: no link is followed, and depth, names and sizes
// are bounded.
//
// The package touches the folder layers/ of BAILEY_HOME and the upper folders it
// is given. It mounts nothing and knows neither drivers nor sandboxes.
package layers
