package run

import (
	"os"
	"os/user"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/driver/linux"
	"github.com/bailey-sandbox/bailey/internal/store/folder"
)

// OpenFolder opens the data folder at path, or at this user's usual place if
// path is empty, in a way that it can deal with files of other ids of this user.
func OpenFolder(path string) (*folder.Folder, error) {
	folder.Foreign.Remove, folder.Foreign.Reclaim = linux.RemoveForeign, linux.ReclaimForeign
	if path == "" {
		return folder.Open()
	}
	return folder.OpenAt(path)
}

// NewHost gathers what a run needs to know about its caller: this process.
func NewHost(f *folder.Folder, d driver.Driver) *Host {
	h := &Host{Folder: f, Driver: d, Env: os.Environ(), Home: os.Getenv("HOME")}
	if u, err := user.Current(); err == nil {
		h.User = u.Username
		if h.Home == "" {
			h.Home = u.HomeDir
		}
	}
	return h
}
