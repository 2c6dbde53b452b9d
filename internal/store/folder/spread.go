package folder

import "os"

// Spread tells the file system that the folders below dir have nothing to do with
// each other; see spread. It is a courtesy, and never fails.
func Spread(dir string) {
	f, err := os.Open(dir)
	if err != nil {
		return
	}
	defer f.Close()
	spread(int(f.Fd()))
}
