// Package registry speaks to registries of OCI images: it finds out what a
// reference means, asks for permission, and fetches manifests and blobs, from a
// mirror first where there is one. A download that breaks off goes on where it
// was.
//
// What a registry sends is hostile: sizes are bounded before they are read,
// digests are compared, redirects lead to public addresses only unless the
// configuration names the host. Credentials are those of Docker's configuration
// file and its helpers; they are sent to the registry they belong to.
//
// The package opens connections to registries, runs credential helpers, and
// writes to the files it is given. It knows neither the image store nor
// sandboxes.
package registry
