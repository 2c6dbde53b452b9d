package driver

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

// Suspender is a Staying Instance whose memory can be put into files. Where a level
// can do it, Capabilities.Memory says so and its Driver is a Restorer.
type Suspender interface {
	Staying
	// Suspend stops the sandbox for good and puts its memory into dir, an empty folder
	// of the caller's. Afterwards none of its processes runs or writes any more, Done
	// is closed or soon will be, and only Destroy is left to do: it goes on by Restore,
	// any number of times, over files as they are from then on.
	//
	// Nobody speaks to bailey-init meanwhile. When Suspend fails the sandbox either
	// runs on or is Done, and what dir holds is nobody's.
	Suspend(ctx context.Context, dir string) (Memory, error)
}

// Copier is a Suspender whose memory can be put into files while it runs.
type Copier interface {
	Suspender
	// Copy puts the sandbox's memory into dir, an empty folder of the caller's, and lets
	// the sandbox go on. files is called once, at the moment of which the memory is:
	// none of the sandbox's processes runs, all that they wrote is in the sandbox's places, and
	// whoever copies these has the files that the memory fits. An error of files is given back.
	//
	// Nobody else speaks to bailey-init until Copy is back, and after an error the
	// sandbox runs on or is Done. Where the caller dies in between, Resume of the Instance
	// that is adopted lets it go on.
	Copy(ctx context.Context, dir string, files func() error) (Memory, error)
}

// Restorer is a Driver that goes on from memory in files.
type Restorer interface {
	Adopter
	// Restore makes a sandbox that goes on where Suspend stopped one, or from what Copy kept. The Spec is as for
	// Create; kinds and targets of its Places are as they were, and its layer has the
	// files of that moment and nothing of the kernel's from before. Another Spec.ID than Memory.ID makes a fork: all that names
	// a sandbox is the new one's.
	//
	// The Instance is not to be used before bailey-init's clock is set and entropy is
	// added: its Agent gives the conversation as it was cut off, and the exec ids and
	// offsets in it go on. Memory that CheckMemory refuses is refused before anything
	// starts. The files in dir must stay as they are for as long as the sandbox lives.
	Restore(ctx context.Context, spec Spec, m Memory, dir string) (Instance, error)
}

// Memory says what a folder with a sandbox's memory holds, and where it can be used:
// with nothing but the same level, version of its kernel and host.
type Memory struct {
	ID    string           `json:"id"` // of the sandbox whose it was
	Level bailey.Isolation `json:"level"`
	// Version is of what runs the sandbox, such as the hash of its program.
	Version string       `json:"version"`
	Host    string       `json:"host"` // HostFingerprint
	Files   []MemoryFile `json:"files"`
	// Data is the driver's own.
	Data json.RawMessage `json:"data,omitempty"`
}

// MemoryFile is one file of a memory.
type MemoryFile struct {
	Name   string `json:"name"`
	Size   int64  `json:"size"` // bytes
	SHA256 string `json:"sha256"`
}

// SealMemory completes m with this host and the files of dir, and puts them on disk. A
// driver calls it when nothing writes there any more.
func SealMemory(m Memory, dir string) (Memory, error) {
	fail := func(err error) (Memory, error) {
		return Memory{}, bailey.Errorf(bailey.CodeStorage, "keep the memory of "+m.ID, "", "%w", err)
	}
	var err error
	if m.Host, err = HostFingerprint(); err != nil {
		return fail(err)
	}
	list, err := os.ReadDir(dir)
	if err != nil {
		return fail(err)
	}
	m.Files = nil
	for _, entry := range list {
		f, err := openMemory(filepath.Join(dir, entry.Name()))
		if err != nil {
			return fail(err)
		}
		// On disk first: what is read back is what a later start will read.
		err = f.Sync()
		file := MemoryFile{Name: entry.Name()}
		if err == nil {
			file.Size, file.SHA256, err = hashOf(f)
		}
		if err = errors.Join(err, f.Close()); err != nil {
			return fail(err)
		}
		m.Files = append(m.Files, file)
	}
	d, err := os.Open(dir)
	if err != nil {
		return fail(err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fail(err)
	}
	return m, nil
}

// CheckMemory refuses, as restore_incomplete, a memory of another level, version or
// host, and one of which a file is not as it was sealed. It reads all of it.
func CheckMemory(m Memory, dir string, level bailey.Isolation, version string) error {
	fail := func(format string, args ...any) error {
		return bailey.Errorf(bailey.CodeRestoreIncomplete, "go on with the memory of "+m.ID, "start the sandbox from its files", format, args...)
	}
	host, err := HostFingerprint()
	switch {
	case err != nil:
		return fail("what this host is cannot be told: %w", err)
	case m.Level != level:
		return fail("it is of the level %s, and this is %s", m.Level, level)
	case m.Version != version:
		return fail("it was made by another version of the level %s", level)
	case m.Host != host:
		return fail("it was made on another processor or kernel")
	case len(m.Files) == 0:
		return fail("it has no files")
	}
	for _, want := range m.Files {
		if want.Name != filepath.Base(want.Name) {
			return fail("%q is no name of a file", want.Name)
		}
		f, err := openMemory(filepath.Join(dir, want.Name))
		if err != nil {
			return fail("%w", err)
		}
		size, sum, err := hashOf(f)
		f.Close()
		switch {
		case err != nil:
			return fail("%w", err)
		case size != want.Size:
			return fail("%s has %d bytes, and had %d", want.Name, size, want.Size)
		case sum != want.SHA256:
			return fail("%s is damaged", want.Name)
		}
	}
	return nil
}

// openMemory opens a regular file, and waits for nobody if it is something else.
func openMemory(path string) (*os.File, error) {
	st, err := os.Lstat(path)
	if err != nil {
		return nil, err
	}
	if !st.Mode().IsRegular() {
		return nil, &fs.PathError{Op: "open", Path: path, Err: errors.New("it is no regular file")}
	}
	return os.Open(path)
}

func hashOf(f *os.File) (size int64, sum string, err error) {
	h := sha256.New()
	size, err = io.Copy(h, f)
	return size, hex.EncodeToString(h.Sum(nil)), err
}

// HostFingerprint is the same on hosts of which one can go on with memory of the
// other's: it stands for the kernel's release and build, and for what the first
// processor is and can do.
func HostFingerprint() (string, error) {
	h := sha256.New()
	for _, path := range []string{"/proc/sys/kernel/osrelease", "/proc/sys/kernel/version"} {
		b, err := os.ReadFile(path)
		if err != nil {
			return "", err
		}
		h.Write(b)
	}
	b, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return "", err
	}
	first, _, _ := strings.Cut(string(b), "\n\n")
	for line := range strings.Lines(first) {
		key, _, _ := strings.Cut(line, ":")
		switch strings.TrimSpace(key) {
		case "vendor_id", "cpu family", "model", "model name", "stepping", "flags", // x86
			"CPU implementer", "CPU architecture", "CPU variant", "CPU part", "CPU revision", "Features": // arm64
			io.WriteString(h, line)
		}
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}
