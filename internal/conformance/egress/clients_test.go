//go:build linux

package egress

import (
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/internet"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/mirrors"
	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
	"github.com/bailey-sandbox/bailey/internal/conformance/rig"
	"github.com/bailey-sandbox/bailey/internal/testneeds"
)

// TestClients runs real clients through the gate.
func TestClients(t *testing.T) {
	testneeds.Tool(t, "ip", "nsenter", "curl", "wget", "git", "python3", "pip3", "node", "npm", "openssl", "psql", "ssh", "busybox")
	if _, err := os.Stat(sshd); err != nil {
		t.Skip(testneeds.PrefixTool + "sshd")
	}
	outer(t, "^TestStageClients$")
}

const sshd = "/usr/sbin/sshd"

// TestStageClients is the inner part.
func TestStageClients(t *testing.T) {
	w := world(t, "TestClients")
	w.Handle(plan.Index, mirrors.PyPI())
	w.Handle(plan.Registry, mirrors.NPM(plan.Registry))
	w.Handle(plan.Modules, mirrors.Go())
	w.Handle(plan.Debian, mirrors.Debian())
	w.Handle(plan.Crates, mirrors.Crates(plan.Crates))
	keys := serveSSH(t, w)
	people := rig.People()
	several := map[string]bool{"root": true}
	if rig.Self().Root() {
		giveIDs(t, people[1])
		several[people[1].Name] = true
	}
	for _, who := range people {
		for _, l := range levels {
			t.Run(who.Name+"/"+l.name, func(t *testing.T) {
				begin := time.Now()
				clients(t, w, who, l, keys, several[who.Name])
				t.Logf("in %v", time.Since(begin).Round(time.Millisecond))
			})
		}
	}
}

// sshKeys are a client's key, which the server accepts.
type sshKeys struct{ private, user string }

// serveSSH lets a real sshd answer at the ssh host, one process a connection.
func serveSSH(t *testing.T, w *internet.World) sshKeys {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"host", "client"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("ssh-keygen: %v: %s", err, out)
		}
	}
	if os.Geteuid() == 0 {
		// sshd wants this folder, which its service makes.
		if err := os.Mkdir("/run/sshd", 0o755); err == nil {
			t.Cleanup(func() { os.Remove("/run/sshd") })
		}
	}
	config := fmt.Sprintf("HostKey %s/host\nAuthorizedKeysFile %[1]s/client.pub\nStrictModes no\nUsePAM no\nPasswordAuthentication no\nPermitRootLogin yes\nPidFile none\n", dir)
	if err := os.WriteFile(filepath.Join(dir, "config"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	w.Stream(plan.Shell+":22", func(c net.Conn) {
		cmd := exec.Command(sshd, "-i", "-e", "-f", filepath.Join(dir, "config"))
		// Through pipes: what it hears goes into the record.
		cmd.Stdin, cmd.Stdout = c, c
		var said strings.Builder
		cmd.Stderr = &said
		err := cmd.Run()
		if testing.Verbose() {
			fmt.Printf("sshd: %v: %s\n", err, said.String())
		}
	})
	private, err := os.ReadFile(filepath.Join(dir, "client"))
	if err != nil {
		t.Fatal(err)
	}
	me, err := user.Current()
	if err != nil {
		t.Fatal(err)
	}
	return sshKeys{string(private), me.Username}
}

// javaSource fetches a URL, as Java's own client does.
const javaSource = `import java.net.*;
public class Fetch {
    public static void main(String[] a) throws Exception {
        for (String url : a) {
            URLConnection c = new URL(url).openConnection();
            if (url.contains("echo")) c.setRequestProperty("Authorization", "Bearer " + System.getenv("ECHO_KEY"));
            System.out.println(new String(c.getInputStream().readAllBytes()));
        }
    }
}
`

// muslSource asks musl's resolver.
const muslSource = `#include <netdb.h>
#include <stdio.h>
int main(int n, char **a) {
	struct addrinfo *r;
	int e = getaddrinfo(a[1], "443", 0, &r);
	printf("musl: %s\n", e ? gai_strerror(e) : "found");
	return e != 0;
}
`

// giveIDs gives a person subordinate ids, in files that stand for the host's in
// these namespaces only. Where the suite is not root it cannot: the ids of its user
// do not exist in the user namespace that the stage is in.
func giveIDs(t *testing.T, who rig.Person) {
	t.Helper()
	// Ids that no one has: useradd(8) gives ranges from 100000 on.
	line := fmt.Sprintf("%d:%d:65536\n", who.UID, 2_000_000_000)
	for _, name := range []string{"subuid", "subgid"} {
		file, target := filepath.Join(inside.Dir, name), "/etc/"+name
		if err := os.WriteFile(file, []byte(line), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := unix.Mount(file, target, "", unix.MS_BIND, ""); err != nil {
			t.Fatalf("replace %s: %v", target, err)
		}
		t.Cleanup(func() {
			if err := unix.Unmount(target, 0); err != nil {
				t.Errorf("give %s back: %v", target, err)
			}
		})
	}
}

// debianRoot makes a root file system of the host's apt and dpkg, and of what they
// are linked with, in which nothing is installed yet.
func (b *bed) debianRoot(t *testing.T) string {
	t.Helper()
	root := filepath.Join(b.Base, "debian")
	b.Write(root+"/etc/passwd", "root:x:0:0::/root:/bin/sh\n_apt:x:42:65534::/nonexistent:/usr/sbin/nologin\n", 0o644)
	b.Write(root+"/etc/group", "root:x:0:\nnogroup:x:65534:\n", 0o644)
	b.Write(root+"/var/lib/dpkg/status", "", 0o644)
	script := `cd "$0"
programs="/bin/sh $(ls -d /usr/lib/apt/methods/*)"
for p in apt-get apt-config dpkg dpkg-deb dpkg-split ldconfig start-stop-daemon tar rm cat diff; do programs="$programs $(command -v $p)"; done
for p in $programs; do echo $p; ldd $p 2>/dev/null | grep -o '/[^ )]*' || true; done | sort -u | xargs cp -L --parents -t .
cp -rL --parents /usr/share/dpkg /etc/ssl/certs/ca-certificates.crt .
mkdir -p root tmp var/tmp var/log/apt var/cache/apt/archives/partial var/lib/apt/lists/partial var/lib/dpkg/info var/lib/dpkg/updates var/lib/dpkg/triggers \
	etc/apt/apt.conf.d etc/apt/preferences.d etc/apt/trusted.gpg.d
chmod 1777 tmp var/tmp`
	cmd := b.Native("sh", "-ec", script, root)
	cmd.Env = append(cmd.Env, "PATH=/usr/local/bin:/usr/bin:/bin:/usr/sbin:/sbin")
	if r := b.Finish(cmd); r.Code != 0 {
		t.Fatal(r)
	}
	return root
}

// asked says whether a client is to run: all are, unless some are named.
func asked(c Client) bool {
	only := os.Getenv(onlyVariable)
	return only == "" || slices.Contains(strings.Split(only, ","), c.Name)
}

// clients runs every client at one level as one person, some at a time.
func clients(t *testing.T, w *internet.World, who rig.Person, l level, keys sshKeys, several bool) {
	b := newBed(t, w, who, l)
	git := GitSecret(b.seed)
	b.secrets = append(slices.DeleteFunc(b.secrets, func(s Secret) bool { return s.Key != "echo" }), git)
	b.keep(t, "GIT_TOKEN", git.Value)
	b.Write(b.Base+"/clients.yaml", ClientPolicy(), 0o644)
	b.Write("key", keys.private, 0o600)
	b.Write("Fetch.java", javaSource, 0o644)
	h, err := mirrors.Git(repository(t, b), git.Value)
	if err != nil {
		t.Fatal(err)
	}
	w.Handle(plan.Git, h)
	if musl, err := exec.LookPath("musl-gcc"); err == nil {
		b.Write("musl.c", muslSource, 0o644)
		if r := b.Finish(b.Native(musl, "-static", "-o", "musl", "musl.c")); r.Code != 0 {
			t.Fatal(r)
		}
	}
	if several && !who.Root() && l.name == "container" && b.absent([]string{"apt-get"}) == "" {
		// In the host template dpkg's database is the host's, which is root's.
		b.image = b.debianRoot(t)
	}
	gate := make(chan struct{}, 3) // few at a time
	var wait sync.WaitGroup
	var mu sync.Mutex
	var printed strings.Builder
	for _, c := range Clients {
		if c.Only != "" && c.Only != l.name || c.Users && !several || !asked(c) {
			continue
		}
		if missing := b.absent(c.Tools); missing != "" {
			if !c.Optional {
				t.Errorf("%s: %s has no %s, which scripts/needs.txt brings", c.Name, who.Name, missing)
			}
			t.Logf("%-22s %-9s %-5s not run: %s has no %s", c.Name, l.name, who.Name, who.Name, missing)
			continue
		}
		wait.Go(func() {
			gate <- struct{}{}
			defer func() { <-gate }()
			begin := time.Now()
			r := b.client(c, keys)
			mu.Lock()
			defer mu.Unlock()
			printed.WriteString(r.Stdout + r.Stderr)
			result := "ok"
			if r.Code != 0 || !strings.Contains(r.Stdout, c.Prints) {
				result = "FAILED"
				t.Errorf("%s: %.3000s", c.Name, r)
			}
			t.Logf("%-22s %-9s %-5s %-6s %v", c.Name, l.name, who.Name, result, time.Since(begin).Round(10*time.Millisecond))
		})
	}
	wait.Wait()
	if os.Getenv(onlyVariable) == "" {
		b.evidence(t)
	}
	b.afterAll(t, nil, printed.String())
}

// absent gives the first of the tools that the person does not have.
func (b *bed) absent(tools []string) string {
	for _, name := range tools {
		if p := tool(name); p == "" || b.Native("test", "-x", p).Run() != nil {
			return name
		}
	}
	return ""
}

// tool finds a program: of cargo, that to which rustup's stand-in leads.
func tool(name string) string {
	if name == "cargo" {
		if out, err := exec.Command("rustup", "which", name).Output(); err == nil {
			return strings.TrimSpace(string(out))
		}
	}
	p := ""
	for _, dir := range []string{"/usr/local/bin", "/usr/bin", "/bin"} { // a yard's PATH
		if fi, err := os.Stat(filepath.Join(dir, name)); err == nil && fi.Mode()&0o111 != 0 {
			p = filepath.Join(dir, name)
			break
		}
	}
	if p == "" {
		p, _ = exec.LookPath(name)
	}
	if p == "" {
		return ""
	}
	p, err := filepath.EvalSymlinks(p)
	if err != nil {
		return ""
	}
	return p
}

// client runs one in a sandbox of its own, whose changes are thrown away.
func (b *bed) client(c Client, keys sshKeys) rig.Result {
	args := append([]string{"run"}, b.level.flags...)
	if c.Users && b.image != "" {
		args = []string{"run", "--image", b.image}
	}
	args = append(args, "--discard", "--policy", b.Base+"/clients.yaml", "--env", "SSH_USER="+keys.user, "--env", "CLIENT="+c.Name)
	switch {
	case slices.Contains(c.Tools, "go"), slices.Contains(c.Tools, "cargo"):
		bin := filepath.Dir(tool(c.Tools[0]))
		args = append(args, "--mount", filepath.Dir(bin), "--env", "PATH="+bin+":/usr/local/bin:/usr/bin:/bin")
	}
	return b.Finish(b.Bailey(append(args, "--", "sh", "-ec", "cd "+b.Work+"; "+c.Script)...))
}

// repository makes a private one and gives the folder it is in.
func repository(t *testing.T, b *bed) string {
	t.Helper()
	root := filepath.Join(b.Base, "git")
	b.Write(root+"/tree/file", "a private file\n", 0o644)
	git := func(args ...string) {
		t.Helper()
		if r := b.Finish(b.Native("git", args...)); r.Code != 0 {
			t.Fatal(r)
		}
	}
	git("-C", root+"/tree", "init", "-q", "-b", "main")
	git("-C", root+"/tree", "add", "-A")
	git("-C", root+"/tree", "-c", "user.name=a", "-c", "user.email=a@b.test", "commit", "-q", "-m", "first")
	git("clone", "-q", "--bare", root+"/tree", root+"/private.git")
	return root
}

// evidence: the secrets arrived where they belong, and what was spliced was seen
// by nobody between.
func (b *bed) evidence(t *testing.T) {
	t.Helper()
	for _, s := range b.secrets {
		if !slices.ContainsFunc(b.world.Record.Sightings(s.Value), func(e internet.Event) bool { return e.Kind == "request" && e.Host == s.Host }) {
			t.Errorf("the value of %s did not arrive at %s", s.Key, s.Host)
		}
	}
	log, err := ReadLog(filepath.Join(b.Data, "audit"))
	if err != nil {
		t.Fatal(err)
	}
	opaque := 0
	for _, rec := range log {
		if rec.Egress != nil && rec.Egress.Opaque && rec.Egress.Host == plan.Spliced {
			opaque++
		}
		if rec.Decision == "deny" {
			t.Errorf("record %d denies: %s %s:%d %s: %s", rec.Seq, rec.Kind, rec.Egress.Host, rec.Egress.Port, rec.Egress.Path, rec.Reason)
		}
	}
	if opaque == 0 {
		t.Error("no stream was spliced")
	}
	filepath.WalkDir(b.Work, func(p string, e fs.DirEntry, err error) error {
		if err == nil && strings.Contains(p, "clone") {
			t.Errorf("%s came out of the sandbox", p)
		}
		return nil
	})
}
