//go:build !linux

package vault

import "errors"

// watcher is not there: files are looked at.
type watcher struct{}

func watchFolder(string) (*watcher, error) { return nil, errors.ErrUnsupported }

func (*watcher) next() error { return errors.ErrUnsupported }

func (*watcher) close() {}
