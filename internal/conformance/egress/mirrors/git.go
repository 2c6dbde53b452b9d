package mirrors

import (
	"net/http"
	"net/http/cgi"
	"os/exec"
	"path/filepath"
	"strings"
)

// Git serves the repositories below root by git's own server program, to whoever
// has the password.
func Git(root, password string) (http.Handler, error) {
	out, err := exec.Command("git", "--exec-path").Output()
	if err != nil {
		return nil, err
	}
	h := &cgi.Handler{
		Path: filepath.Join(strings.TrimSpace(string(out)), "git-http-backend"),
		Env: []string{"GIT_PROJECT_ROOT=" + root, "GIT_HTTP_EXPORT_ALL=1", "REMOTE_USER=somebody",
			// The repositories may belong to somebody else than who serves them.
			"GIT_CONFIG_COUNT=1", "GIT_CONFIG_KEY_0=safe.directory", "GIT_CONFIG_VALUE_0=*"},
	}
	return http.HandlerFunc(func(rw http.ResponseWriter, r *http.Request) {
		if _, given, ok := r.BasicAuth(); !ok || given != password {
			rw.Header().Set("WWW-Authenticate", `Basic realm="git"`)
			http.Error(rw, "who are you?", http.StatusUnauthorized)
			return
		}
		h.ServeHTTP(rw, r)
	}), nil
}
