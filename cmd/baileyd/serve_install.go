package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bailey-sandbox/bailey"
)

const unit = `[Unit]
Description=Bailey, sandboxes for AI agents
After=network-online.target
Wants=network-online.target

[Service]
ExecStart=%s
ExecReload=/bin/kill -HUP $MAINPID
Restart=on-failure
# Only the keeper is told to end: it tells the daemon, which stops sandboxes in order.
KillMode=mixed
TimeoutStopSec=90
# The daemon makes the control groups of its sandboxes below its own.
Delegate=yes
LimitNOFILE=1048576
TasksMax=infinity
# A sandbox that is ended for its memory is no reason to end all others.
OOMPolicy=continue

[Install]
WantedBy=%s
`

// install prints a systemd unit that starts the daemon with the same flags, and as
// comments what to do with it. It changes nothing.
func install(w io.Writer, o serveFlags, args []string) error {
	self, err := os.Executable()
	if err != nil {
		return bailey.Errorf(bailey.CodeInternal, "find this program", "", "%w", err)
	}
	dir := filepath.Dir(self)
	command := []string{filepath.Join(dir, "bailey-keeper"), "--home", o.home, "--", self, "serve", "--home", o.home}
	skip := false
	for _, a := range args {
		name, _, inline := strings.Cut(a, "=")
		switch {
		case skip:
			skip = false
		case name == "--install" || name == "--auto":
		case name == "--home":
			skip = !inline
		default:
			command = append(command, a)
		}
	}
	words := make([]string, len(command))
	for i, c := range command {
		words[i] = quoted(c)
	}
	place, ctl, target := "/etc/systemd/system/bailey.service", "systemctl", "multi-user.target"
	if os.Geteuid() != 0 {
		place, ctl, target = "~/.config/systemd/user/bailey.service", "systemctl --user", "default.target"
	}
	_, err = fmt.Fprintf(w, "# Write this to %[1]s, then: %[2]s daemon-reload && %[2]s enable --now bailey\n", place, ctl)
	if err == nil && os.Geteuid() != 0 {
		_, err = fmt.Fprintln(w, "# To have it run while you are not logged in: loginctl enable-linger")
	}
	if err == nil {
		_, err = fmt.Fprintf(w, "# Upgrade without ending sandboxes: replace the programs, then %s reload bailey\n"+unit, ctl, strings.Join(words, " "), target)
	}
	if err != nil {
		return bailey.Errorf(bailey.CodeStorage, "print the unit", "", "%w", err)
	}
	return nil
}

// quoted writes a word of a command as systemd reads it.
func quoted(s string) string {
	s = strings.NewReplacer("%", "%%", "$", "$$", "\\", "\\\\", `"`, `\"`).Replace(s)
	if strings.ContainsAny(s, " \t'\"") || s == "" {
		return `"` + s + `"`
	}
	return s
}
