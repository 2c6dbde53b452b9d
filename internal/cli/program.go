package cli

import (
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey"
)

// program finds another program of Bailey: beside this one.
func program(name string) (string, error) {
	self, err := os.Executable()
	if err == nil {
		if p := filepath.Join(filepath.Dir(self), name); executable(p) {
			return p, nil
		}
	}
	return "", bailey.Errorf(bailey.CodeNotAvailable, "start "+name, "build all of Bailey with ./scripts/build", "it is not beside %s", self)
}

func executable(p string) bool {
	fi, err := os.Stat(p)
	return err == nil && fi.Mode().IsRegular() && fi.Mode()&0o111 != 0
}
