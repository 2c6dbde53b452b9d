package api

import "time"

// FileInfo is what is known about a file inside a sandbox.
type FileInfo struct {
	Path    string    `json:"path"`
	Type    string    `json:"type"` // file, dir, symlink, fifo, socket, char, block
	Mode    string    `json:"mode"` // octal permission bits, as 0644
	UID     uint32    `json:"uid"`
	GID     uint32    `json:"gid"`
	Size    int64     `json:"size"`
	ModTime time.Time `json:"mod_time"`
	Target  string    `json:"target,omitempty"` // of a symbolic link
	// PathBytes is the path where it is not UTF-8: base64 in JSON.
	PathBytes []byte `json:"path_bytes,omitempty"`
}

// Written is the answer to a write, about what is now there.
type Written struct {
	Path   string `json:"path"`
	Size   int64  `json:"size"`
	SHA256 string `json:"sha256"` // hex
}

// TarResult is the answer to an archive that was unpacked.
type TarResult struct {
	Files   int64    `json:"files"`
	Bytes   int64    `json:"bytes"`
	Skipped []string `json:"skipped,omitempty"` // with why, never in silence
}

// WatchEvent is a change of a file.
type WatchEvent struct {
	Path string `json:"path"`
	Op   string `json:"op"` // create, write, remove, rename, attrib, overflow
}

// SearchQuery asks for files and lines.
type SearchQuery struct {
	Path string `json:"path"`           // where, with all below
	Name string `json:"name,omitempty"` // a glob that base names match
	// Text is searched in files, as a regular expression of RE2 if Regexp.
	Text     string `json:"text,omitempty"`
	Regexp   bool   `json:"regexp,omitempty"`
	MaxHits  int    `json:"max_hits,omitempty"`  // default 1000
	MaxBytes int64  `json:"max_bytes,omitempty"` // of a file that is looked into; default 16 MiB
}

// SearchResult is what was found, and what was left out.
type SearchResult struct {
	Hits    []SearchHit `json:"hits"`
	Cut     bool        `json:"cut,omitempty"`     // there are more than MaxHits
	Skipped []string    `json:"skipped,omitempty"` // not looked into, with why
}

// SearchHit is a file, or a line in it.
type SearchHit struct {
	Path string `json:"path"`
	Line int    `json:"line,omitempty"` // from 1
	Text string `json:"text,omitempty"`
}
