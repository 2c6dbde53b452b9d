package policy

import "strings"

// classes are the kinds of words that a path pattern may ask for in braces.
var classes = map[string]func(string) bool{
	// The names of packages, people and folders.
	"name": isPackage,
	// npm's scopes, and a name behind one, joined as npm's client does.
	"scope": func(s string) bool { return s != "" && s[0] == '@' && isPackage(s[1:]) },
	"scoped": func(s string) bool {
		scope, name, ok := strings.Cut(s, "%2F")
		return ok && scope != "" && scope[0] == '@' && isPackage(scope[1:]) && isPackage(name)
	},
	// Versions as package managers write them: 1.2.3-rc.1+build~deb!epoch.
	"version": func(s string) bool { return wordEscaped(s, 128, "._-+~!:^") && s[0] != '.' },
	// File names: what a package is stored as.
	"file": func(s string) bool { return wordEscaped(s, 255, "._-+~!@,:=") && s[0] != '.' },
	// An element of a Go module's path, with upper case as !lower (the module
	// proxy protocol), and one with @version behind it.
	"go": isGoElement,
	"go@version": func(s string) bool {
		element, version, ok := strings.Cut(s, "@")
		return ok && isGoElement(element) && word(version, 128, ".-+!")
	},
	// A digest as OCI writes it, and a tag or digest.
	"digest":    isDigest,
	"reference": func(s string) bool { return isDigest(s) || word(s, 128, "._-") && s[0] != '.' && s[0] != '-' },
	// Hexadecimal digests and ids.
	"hex": func(s string) bool {
		return s != "" && len(s) <= 128 && strings.Trim(s, "0123456789abcdefABCDEF") == ""
	},
	// Whole numbers.
	"int": func(s string) bool { return s != "" && len(s) <= 20 && strings.Trim(s, "0123456789") == "" },
}

func isPackage(s string) bool { return word(s, 214, "._-") && s[0] != '.' && s[0] != '-' }

func isGoElement(s string) bool { return word(s, 128, "._-~!") && s[0] != '.' && s[0] != '-' }

func isDigest(s string) bool {
	algorithm, hex, ok := strings.Cut(s, ":")
	return ok && (algorithm == "sha256" && len(hex) == 64 || algorithm == "sha512" && len(hex) == 128) && strings.Trim(hex, "0123456789abcdef") == ""
}

// escapes are characters that some clients escape in names of files.
var escapes = strings.NewReplacer("%2B", "+", "%3A", ":", "%40", "@", "%21", "!", "%2C", ",", "%3D", "=", "%5E", "^")

func wordEscaped(s string, most int, extra string) bool {
	if strings.IndexByte(s, '%') >= 0 {
		s = escapes.Replace(s)
	}
	return word(s, most, extra)
}

// word tells that s is 1 to most letters and digits of ASCII and extra characters.
func word(s string, most int, extra string) bool {
	if s == "" || len(s) > most {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c|0x20 < 'a' || c|0x20 > 'z' {
			if (c < '0' || c > '9') && strings.IndexByte(extra, c) < 0 {
				return false
			}
		}
	}
	return true
}
