package run

import (
	"net/netip"
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/driver"
	"github.com/bailey-sandbox/bailey/internal/gate/control"
	"github.com/bailey-sandbox/bailey/internal/gate/rootfiles"
)

// ProxyVariables lead programs to the gate's proxy. What does not know them is
// led there by the kernel. ALL_PROXY is not set: several programs take a SOCKS
// address in it for an error.
func ProxyVariables() []string {
	address := netip.AddrPortFrom(driver.GateAddr4, driver.GateProxyPort).String()
	const local = "localhost,127.0.0.1,::1"
	return []string{
		"HTTP_PROXY=http://" + address, "HTTPS_PROXY=http://" + address, "http_proxy=http://" + address, "https_proxy=http://" + address,
		"NO_PROXY=" + local, "no_proxy=" + local, "SOCKS5_SERVER=" + address, "socks_proxy=socks5://" + address,
	}
}

// A TrustTarget gives the place of a file of certificates inside, "" if there is
// none: a driver.File or a driver.Bind.
type TrustTarget func(p string) (target string, kind driver.PlaceKind)

// TrustPlaces makes places of a gate's files. keep writes a file that is to be
// bound, under a name of its own, and gives its path for the driver.
func TrustPlaces(files []control.File, at TrustTarget, keep func(name string, content []byte, mode os.FileMode) (string, error)) (places []driver.Place, err error) {
	made := map[string]string{} // content → file
	for _, f := range files {
		target, kind := at(f.Path)
		p := driver.Place{Kind: kind, Target: target, Mode: f.Mode.Perm()}
		switch {
		case target == "":
			continue
		case kind == driver.File:
			p.Content = f.Content
			places = append(places, p)
			continue
		case made[string(f.Content)] == "":
			file, err := keep(strconv.Itoa(len(made)), f.Content, f.Mode.Perm())
			if err != nil {
				return nil, storage(err)
			}
			made[string(f.Content)] = file
		}
		p.Source, p.ReadOnly = made[string(f.Content)], true
		places = append(places, p)
	}
	return places, nil
}

// RootTrust is for a root of the sandbox's own: each is a file like any other,
// which programs inside may replace; the tools that gather certificates do. Where
// a folder of the host is seen it is a mount over what is there, and nothing can be
// added.
func RootTrust(root rootfiles.Root) TrustTarget {
	return func(p string) (string, driver.PlaceKind) {
		for _, bind := range root.Binds {
			if rest, below := strings.CutPrefix(p, bind.Target+"/"); below {
				if _, err := os.Lstat(path.Join(bind.Source, rest)); err == nil {
					return p, driver.Bind
				}
				if os.Geteuid() != 0 {
					return "", 0 // the host's folders are root's, who is nobody inside
				}
			}
		}
		return p, driver.File
	}
}

// HostTrust is for a sandbox that sees the host's files by places: each is a mount
// over what is there.
func HostTrust(places []driver.Place) TrustTarget {
	return func(p string) (string, driver.PlaceKind) {
		by := shownBy(places, p, func(place driver.Place) string { return place.Target })
		if by == nil {
			if within(p, trustDir) {
				return p, driver.Bind
			}
			return "", 0
		}
		// Behind links, the name under which the host's file is seen.
		real, err := filepath.EvalSymlinks(path.Join(by.Source, strings.TrimPrefix(p, by.Target)))
		if err != nil {
			return "", 0
		}
		if by = shownBy(places, real, func(place driver.Place) string { return place.Source }); by == nil {
			return "", 0
		}
		return path.Join(by.Target, strings.TrimPrefix(real, by.Source)), driver.Bind
	}
}

// trustDir is where the gate has its own files inside.
const trustDir = "/etc/bailey"

// shownBy gives the folder or file of the host that has p at or below side,
// nil if there is none; of several the nearest.
func shownBy(places []driver.Place, p string, side func(driver.Place) string) (by *driver.Place) {
	for i := range places {
		place := &places[i]
		if place.Kind == driver.Bind && within(p, side(*place)) && (by == nil || len(side(*place)) >= len(side(*by))) {
			by = place
		}
	}
	return by
}
