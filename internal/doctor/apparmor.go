package doctor

import (
	"path"
	"strings"
)

// profileAllows says whether the AppArmor profile that Bailey runs under is
// one made for it. A name says little about what a profile allows; the trial
// has the last word.
func (h *host) profileAllows() bool {
	name, _, _ := strings.Cut(h.confine.profile, " ")
	return name != "" && name != "unconfined" && name != "unprivileged_userns"
}

// AppArmorProfile gives the text of a profile that lets the program at
// executable, an absolute path, make user namespaces, and changes nothing else
// for it. The form is the one that Ubuntu ships for other programs that need
// this (apparmor.d(5), "userns rules" and "flags").
func AppArmorProfile(executable string) string {
	return `# Lets Bailey make user namespaces, which its sandboxes are built of.
abi <abi/4.0>,
include <tunables/global>

profile bailey ` + appArmorPath(executable) + ` flags=(unconfined) {
  userns,

  include if exists <local/bailey>
}
`
}

// appArmorPath quotes a path for a profile: what AppArmor takes for a pattern
// or a variable must stand for itself.
func appArmorPath(p string) string {
	var s strings.Builder
	s.WriteByte('"')
	for _, c := range []byte(p) {
		if strings.IndexByte(`\*?[]{}^@"`, c) >= 0 {
			s.WriteByte('\\')
		}
		s.WriteByte(c)
	}
	s.WriteByte('"')
	return s.String()
}

// appArmorFix installs that profile.
func (h *host) appArmorFix() []Step {
	exe := h.Executable
	if !path.IsAbs(exe) || clean(exe) != exe {
		exe = "/usr/local/bin/bailey"
	}
	return []Step{
		{
			Text: "install a profile that lets bailey, and no other program, make user namespaces",
			Command: "sudo tee /etc/apparmor.d/bailey >/dev/null <<'EOF'\n" + AppArmorProfile(exe) + "EOF\n" +
				"sudo apparmor_parser -r /etc/apparmor.d/bailey",
		},
		{Text: "the profile names " + exe + ": whoever can replace that file gets the same right, so keep it where only root can write"},
	}
}
