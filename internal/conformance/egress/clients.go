package egress

import (
	"fmt"
	"strings"

	"github.com/bailey-sandbox/bailey/internal/conformance/egress/plan"
)

// GitSecret is the secret that clones a private repository.
func GitSecret(seed string) Secret {
	return Secret{Key: "git", Env: "GIT_KEY", Host: plan.Git, Value: "ghp_" + plan.Canary(seed, "secret git", true)}
}

// ClientPolicy is the document that real clients run under.
func ClientPolicy() string {
	var b strings.Builder
	b.WriteString("version: 1\negress:\n  rules:\n")
	for _, h := range []string{plan.OK, plan.Index, plan.Registry, plan.Modules, plan.Debian, plan.Crates} {
		fmt.Fprintf(&b, "  - {name: %q, hosts: [%q]}\n", h, h)
	}
	fmt.Fprintf(&b, "  - {name: echo, hosts: [%q], secret: echo}\n", plan.Echo)
	fmt.Fprintf(&b, "  - {name: git, hosts: [%q], secret: git}\n", plan.Git)
	fmt.Fprintf(&b, "  - {name: splice, hosts: [%q], tls: splice}\n", plan.Spliced)
	fmt.Fprintf(&b, "  - {name: database, hosts: [%q], protocol: tcp, ports: [\"5432\"]}\n", plan.Database)
	fmt.Fprintf(&b, "  - {name: shell, hosts: [%q], protocol: tcp, ports: [\"22\"]}\n", plan.Shell)
	b.WriteString("secrets:\n  echo: {secret: ECHO_TOKEN, env: ECHO_KEY}\n  git: {secret: GIT_TOKEN, env: GIT_KEY}\n")
	return b.String()
}

// Client is a program that people use, and a script in which it goes through
// termination, injection and splice, or installs something, with no setting of its
// own but where the registry is.
type Client struct {
	Name   string
	Tools  []string // all of which it takes
	Script string
	Prints string // what must be in the output
	// Echoes: the upstream must have seen the real value of the secret.
	Echoes bool
	// Spliced: a stream that nobody looked into must have been in it.
	Spliced bool
	Only    string // level
	Users   bool   // takes a sandbox with several users
	// Optional: there are machines without the tools, and nobody installs them.
	Optional bool
}

const (
	okURL     = "https://" + plan.OK + "/x"
	echoURL   = "https://" + plan.Echo + "/echo"
	spliceURL = "https://" + plan.Spliced + "/x"
)

// Clients are the clients of the suite.
var Clients = []Client{
	{Name: "curl", Tools: []string{"curl"}, Echoes: true, Spliced: true, Prints: "from ok.test",
		Script: `curl -sS --fail ` + okURL + `; curl -sS --fail -H "Authorization: Bearer $ECHO_KEY" ` + echoURL + ` >/dev/null; curl -sS --fail ` + spliceURL + `; curl -sS --fail --noproxy '*' ` + okURL + `; curl -sS --fail http://` + plan.OK + `/`},
	{Name: "wget", Tools: []string{"wget"}, Echoes: true, Spliced: true, Prints: "from ok.test",
		Script: `wget -qO- ` + okURL + `; wget -qO- --header "Authorization: Bearer $ECHO_KEY" ` + echoURL + ` >/dev/null; wget -qO- ` + spliceURL + `; wget -qO- --no-proxy ` + okURL},
	{Name: "python urllib", Tools: []string{"python3"}, Echoes: true, Spliced: true, Prints: "from ok.test",
		Script: `python3 -c 'import os, urllib.request as u
print(u.urlopen("` + okURL + `").read().decode())
u.urlopen(u.Request("` + echoURL + `", headers={"Authorization": "Bearer " + os.environ["ECHO_KEY"]})).read()
u.urlopen("` + spliceURL + `").read()
u.build_opener(u.ProxyHandler({})).open("` + okURL + `").read()'`},
	{Name: "node fetch", Tools: []string{"node"}, Echoes: true, Spliced: true, Prints: "from ok.test",
		Script: `node -e '(async () => {
console.log(await (await fetch("` + okURL + `")).text());
await (await fetch("` + echoURL + `", {headers: {Authorization: "Bearer " + process.env.ECHO_KEY}})).text();
require("https").get("` + okURL + `", r => r.resume());
})().catch(e => { console.error(e, e.cause); process.exit(1) })'
# Node has a list of authorities of its own, on which no root of a test can be.
node --use-openssl-ca -e 'fetch("` + spliceURL + `").then(r => r.text())'`},
	{Name: "go net/http", Echoes: true, Spliced: true, Prints: "from ok.test",
		Script: `./attack get ` + okURL + `; ./attack get ` + echoURL + ` "Authorization: Bearer $ECHO_KEY" >/dev/null; ./attack get ` + spliceURL + `; HTTPS_PROXY= https_proxy= ./attack get ` + okURL},
	{Name: "openssl", Tools: []string{"openssl"}, Spliced: true, Prints: "Verification: OK",
		Script: `for h in ` + plan.OK + " " + plan.Spliced + `; do openssl s_client -connect $h:443 -servername $h -verify_return_error -verify_hostname $h -brief </dev/null 2>&1; done`},
	// T12: a renegotiation is refused, and no certificate is asked for.
	{Name: "openssl renegotiation", Tools: []string{"openssl"}, Prints: "No client certificate CA names sent",
		Script: `openssl s_client -connect ` + plan.OK + `:443 -servername ` + plan.OK + ` -tls1_2 -verify_return_error </dev/null 2>&1; (echo R; sleep 1) | openssl s_client -connect ` + plan.OK + `:443 -servername ` + plan.OK + ` -tls1_2 2>&1 | grep -E 'no renegotiation|RENEGOTIATING' `},
	{Name: "git", Tools: []string{"git"}, Prints: "a private file",
		Script: `export GIT_TERMINAL_PROMPT=0; git clone -q https://x-access-token:$GIT_KEY@` + plan.Git + `/private.git clone && cat clone/file && git -C clone fetch -q; cat clone/.git/config; tr '\0' '\n' </proc/self/environ; ps ax -ww 2>/dev/null || true`},
	{Name: "pip", Tools: []string{"pip3"}, Prints: "tiny says hello",
		Script: `pip3 install --quiet --disable-pip-version-check --no-cache-dir --no-deps --target lib --index-url https://` + plan.Index + `/simple/ tiny; PYTHONPATH=lib python3 -c 'import tiny'`},
	{Name: "npm", Tools: []string{"npm"}, Prints: "tiny says hello",
		Script: `mkdir app; cd app; npm install --silent --no-audit --no-fund --registry https://` + plan.Registry + `/ tiny; node -e 'require("tiny")'`},
	{Name: "go mod download", Tools: []string{"go"}, Prints: "tiny says hello",
		Script: `mkdir mod; cd mod; export GOPROXY=https://` + plan.Modules + ` GOSUMDB=off GOTOOLCHAIN=local GOFLAGS=-modcacherw GOPATH=$PWD/../gopath GOMODCACHE=$PWD/../gopath/mod GOCACHE=$PWD/../gocache
printf 'module m\n\ngo 1.20\n\nrequire golang.test/tiny v1.0.0\n' >go.mod; go mod download all 2>&1; cat ../gopath/mod/golang.test/tiny@v1.0.0/tiny.go`},
	{Name: "psql", Tools: []string{"psql"}, Prints: "select 1",
		Script: `psql -w -h ` + plan.Database + ` -U somebody -d base -Atc 'select 1'`},
	{Name: "ssh", Tools: []string{"ssh"}, Prints: "through ssh",
		Script: `ssh -F none -o StrictHostKeyChecking=no -o UserKnownHostsFile=/dev/null -o BatchMode=yes -o ConnectTimeout=10 -i $PWD/key -l $SSH_USER ` + plan.Shell + ` echo through ssh`},
	{Name: "resolvers", Tools: []string{"getent", "node", "python3", "busybox"}, Prints: "all resolve",
		Script: `getent ahosts ` + plan.OK + `; python3 -c 'import socket; print(socket.getaddrinfo("` + plan.OK + `", 443))'
node -e 'const d = require("dns"); d.lookup("` + plan.OK + `", (e, a) => { if (e) throw e; d.resolve4("` + plan.OK + `", (e, a) => { if (e) throw e; d.resolve6("` + plan.OK + `", (e, a) => { if (e) throw e; console.log(a) }) }) })'
busybox nslookup ` + plan.OK + `; busybox wget -qO- http://` + plan.OK + `/; ./attack get http://` + plan.OK + `/; [ ! -x ./musl ] || ./musl ` + plan.OK + `; echo all resolve`},
	{Name: "apt", Tools: []string{"apt-get"}, Only: "container", Users: true, Prints: "tiny says hello",
		Script: `echo 'deb [trusted=yes] https://` + plan.Debian + `/ ./' >/etc/apt/sources.list; rm -rf /etc/apt/sources.list.d/*; apt-get -q update && apt-get -q install -y tiny-greeting; cat /opt/tiny-greeting`},
	{Name: "java", Optional: true, Tools: []string{"java", "javac"}, Echoes: true, Spliced: true, Prints: "from ok.test",
		Script: `java Fetch.java ` + okURL + ` ` + echoURL + ` ` + spliceURL + ` | grep -v Bearer`},
	{Name: "deno", Optional: true, Tools: []string{"deno"}, Prints: "from ok.test",
		Script: `deno eval 'console.log(await (await fetch("` + okURL + `")).text())'`},
	{Name: "cargo", Optional: true, Tools: []string{"cargo"}, Prints: "tiny says hello",
		Script: `mkdir -p crate/src crate/.cargo; cd crate; export CARGO_HOME=$PWD/../cargo; printf '[package]\nname = "m"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\ntiny = "1"\n' >Cargo.toml; touch src/lib.rs
printf '[source.crates-io]\nreplace-with = "mirror"\n[source.mirror]\nregistry = "sparse+https://` + plan.Crates + `/index/"\n' >.cargo/config.toml; cargo fetch --quiet; cat ../cargo/registry/src/*/tiny-1.0.0/src/lib.rs`},
}
