package mirrors

import (
	"crypto/sha512"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
)

// Greeting is what the package says when it is used.
const Greeting = "tiny says hello"

// files serves content by path.
func files(m map[string][]byte) http.Handler {
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		b, ok := m[r.URL.Path]
		if !ok {
			http.NotFound(rw, r)
			return
		}
		if strings.HasSuffix(r.URL.Path, "/") {
			rw.Header().Set("Content-Type", "text/html")
		} else {
			rw.Header().Set("Content-Type", "application/octet-stream")
		}
		rw.Write(b)
	})
}

// PyPI serves a simple index at /simple/.
func PyPI() http.Handler {
	code := fmt.Sprintf("print(%q)\n", Greeting)
	metadata := "Metadata-Version: 2.1\nName: tiny\nVersion: 1.0\n"
	wheel := "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
	record := fmt.Sprintf("tiny.py,%s,%d\ntiny-1.0.dist-info/METADATA,%s,%d\ntiny-1.0.dist-info/WHEEL,%s,%d\ntiny-1.0.dist-info/RECORD,,\n",
		recordSum(code), len(code), recordSum(metadata), len(metadata), recordSum(wheel), len(wheel))
	b := zipped(file{"tiny.py", code}, file{"tiny-1.0.dist-info/METADATA", metadata}, file{"tiny-1.0.dist-info/WHEEL", wheel}, file{"tiny-1.0.dist-info/RECORD", record})
	const name = "tiny-1.0-py3-none-any.whl"
	return files(map[string][]byte{
		"/simple/tiny/":  fmt.Appendf(nil, `<!DOCTYPE html><a href="/files/%s#sha256=%s">%[1]s</a>`, name, sum(b)),
		"/files/" + name: b,
	})
}

// NPM serves a registry at the root of host.
func NPM(host string) http.Handler {
	b := tarred(file{"package/package.json", `{"name":"tiny","version":"1.0.0","main":"index.js"}`}, file{"package/index.js", fmt.Sprintf("console.log(%q)\n", Greeting)})
	h := sha512.Sum512(b)
	doc, err := json.Marshal(map[string]any{"name": "tiny", "dist-tags": map[string]string{"latest": "1.0.0"}, "versions": map[string]any{
		"1.0.0": map[string]any{"name": "tiny", "version": "1.0.0", "main": "index.js", "dist": map[string]string{
			"tarball": "https://" + host + "/tiny/-/tiny-1.0.0.tgz", "integrity": "sha512-" + base64.StdEncoding.EncodeToString(h[:])}}}})
	must(err)
	return files(map[string][]byte{"/tiny": doc, "/tiny/-/tiny-1.0.0.tgz": b})
}

// GoModule is the module that Go serves.
const GoModule = "golang.test/tiny"

// Go serves the module proxy protocol.
func Go() http.Handler {
	mod := "module " + GoModule + "\n\ngo 1.20\n"
	const at = "/" + GoModule + "/@v/"
	return files(map[string][]byte{
		at + "list":        []byte("v1.0.0\n"),
		at + "v1.0.0.info": []byte(`{"Version":"v1.0.0","Time":"2024-01-01T00:00:00Z"}`),
		at + "v1.0.0.mod":  []byte(mod),
		at + "v1.0.0.zip": zipped(file{GoModule + "@v1.0.0/go.mod", mod},
			file{GoModule + "@v1.0.0/tiny.go", fmt.Sprintf("package tiny\n\nconst Greeting = %q\n", Greeting)}),
	})
}

// Debian serves a flat repository.
func Debian() http.Handler {
	control := "Package: tiny-greeting\nVersion: 1.0\nArchitecture: all\nMaintainer: Nobody <nobody@mirror.test>\nDescription: says hello\n"
	deb := ar(file{"debian-binary", "2.0\n"}, file{"control.tar.gz", string(tarred(file{"./", ""}, file{"./control", control}))},
		file{"data.tar.gz", string(tarred(file{"./", ""}, file{"./opt/", ""}, file{"./opt/tiny-greeting", Greeting + "\n"}))})
	packages := control + fmt.Sprintf("Filename: ./tiny.deb\nSize: %d\nSHA256: %s\n", len(deb), sum(deb))
	return files(map[string][]byte{"/Packages": []byte(packages), "/./Packages": []byte(packages), "/tiny.deb": deb, "/./tiny.deb": deb})
}

// Crates serves a sparse index at /index/ of host.
func Crates(host string) http.Handler {
	b := tarred(file{"tiny-1.0.0/Cargo.toml", "[package]\nname = \"tiny\"\nversion = \"1.0.0\"\nedition = \"2021\"\n"},
		file{"tiny-1.0.0/src/lib.rs", fmt.Sprintf("pub const GREETING: &str = %q;\n", Greeting)})
	line := fmt.Sprintf(`{"name":"tiny","vers":"1.0.0","deps":[],"cksum":"%s","features":{},"yanked":false}`+"\n", sum(b))
	return files(map[string][]byte{
		"/index/config.json": fmt.Appendf(nil, `{"dl":"https://%s/dl/{crate}/{version}"}`, host),
		"/index/ti/ny/tiny":  []byte(line),
		"/dl/tiny/1.0.0":     b,
	})
}
