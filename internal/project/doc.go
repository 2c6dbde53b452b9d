// Package project reads bailey.yaml, the file by which a project sets flags of
// Bailey for itself.
//
// Whatever runs in a workspace can write that file, so it is taken for an
// attacker's. Three walls stand before it: it counts only after a person has
// trusted exactly these bytes at exactly this place ([Store]); it has a small,
// strict form ([Parse]); and it can make a sandbox narrower, never wider, than
// the person's own flags and Bailey's defaults make it ([Merge]).
//
// The package touches the file, and the folder of trusted hashes in Bailey's
// data folder.
//
// The parser is go.yaml.in/yaml/v3. It costs 0.18 ms at start-up, 0.13 ms more
// than github.com/goccy/go-yaml does (medians of 40 starts each, by
// GODEBUG=inittrace=1), and was taken because it is kept by the YAML
// organisation, with security fixes, and gives a plain tree with line numbers.
package project
