package web_test

import (
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/bailey-sandbox/bailey/internal/testneeds"
	"github.com/bailey-sandbox/bailey/policy"
)

// Git shows its user the text of an answer, if it is plain text, behind
// "remote:", and of JSON nothing but its status.
func TestGitShowsWhy(t *testing.T) {
	git := testneeds.Tool(t, "git")
	for url, reason := range map[string]string{"http://paths.test/secret.git": policy.ReasonPath, "http://unknown.test/x.git": policy.ReasonNoRule, "http://other.test/down.git": "name_unresolved"} {
		w := newWorld(t, allowOK)
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		w.serving.Go(func() {
			for {
				c, err := l.Accept()
				if err != nil {
					return
				}
				w.serving.Go(func() { w.web.ServeProxy(w.ctx, w.box, c, nil) })
			}
		})
		cmd := exec.CommandContext(t.Context(), git, "clone", url, t.TempDir()+"/copy")
		cmd.Env = append(os.Environ(), "GIT_TERMINAL_PROMPT=0", "GIT_CONFIG_GLOBAL=/dev/null", "GIT_CONFIG_NOSYSTEM=1", "no_proxy=", "http_proxy=http://"+l.Addr().String())
		out, err := cmd.CombinedOutput()
		l.Close()
		if err == nil || !strings.Contains(string(out), "remote: ") || !strings.Contains(string(out), "["+reason+"]") {
			t.Errorf("%s: git says %s", url, out)
		}
	}
}
