package changes

import "github.com/bailey-sandbox/bailey/internal/terminal"

// Printable gives a name as it may be shown on a terminal; see
// [terminal.Printable].
func Printable(name string) string { return terminal.Printable(name) }
