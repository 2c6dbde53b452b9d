package project

import (
	"fmt"
	"path"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/hostview"
)

const everything = `# A project's file.
version: 1
isolation: container
min-isolation: process
image: build/rootfs.tar
template: host
workdir: src/app
home: agent
copy: true
cpus: 1.5
memory: 2GiB
disk: 512M
io: 1048576
output: "10M"
pids: 256
timeout: 1h30m
mounts:
  - fixtures:/data
  - ./golden/x:/golden:ro
env: [CI, GREETING=hello world, 'EMPTY=', "PORT=8080"]
allow: [a.test, "b.test:8443"]
profiles: [registry-readonly/go]
secrets: [TOKEN@a.test]
policy: ci/policy.yaml
`

func TestParseEverything(t *testing.T) {
	got, err := Parse([]byte(everything), "/home/u/proj")
	if err != nil {
		t.Fatal(err)
	}
	want := Settings{
		Isolation: bailey.IsolationContainer, MinIsolation: bailey.IsolationProcess, Image: "/home/u/proj/build/rootfs.tar", Template: "host",
		Workdir: "/home/u/proj/src/app", Home: "agent", Copy: true,
		Limits: bailey.Limits{CPUs: 1.5, Memory: 2 << 30, Disk: 512 << 20, IO: 1 << 20, Output: 10 << 20, Pids: 256, Timeout: 90 * time.Minute},
		Mounts: []hostview.Mount{{Source: "/home/u/proj/fixtures", Target: "/data"}, {Source: "/home/u/proj/golden/x", Target: "/golden"}},
		Env:    []string{"CI", "GREETING=hello world", "EMPTY=", "PORT=8080"},
		Allow:  []string{"a.test", "b.test:8443"}, Profiles: []string{"registry-readonly/go"}, Secrets: []string{"TOKEN@a.test"},
		Policy: &File{Path: "/home/u/proj/ci/policy.yaml"},
	}
	if !reflect.DeepEqual(got, want) {
		t.Errorf("got\n%+v, not\n%+v", got, want)
	}
	// Every field that a file may set is in that file.
	for key := range fields {
		if !strings.Contains(everything, key+":") {
			t.Errorf("%s is not tested", key)
		}
	}
}

func TestParseNothing(t *testing.T) {
	for _, s := range []string{"", "\n", "# only a comment\n", "---\n", "null\n", "~", "{}", "--- {}\n...\n"} {
		if got, err := Parse([]byte(s), "/p"); err != nil || !reflect.DeepEqual(got, Settings{}) {
			t.Errorf("%q gives %+v, %v", s, got, err)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	bomb := "a: &a [x,x,x,x,x,x,x,x,x]\n"
	for c := 'b'; c < 'k'; c++ {
		bomb += fmt.Sprintf("%c: &%c [*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c,*%c]\n", c, c, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1, c-1)
	}
	long := strings.Repeat("x", maxText+1)
	tests := []struct{ file, says string }{
		// Form
		{"colour: red", `line 1: there is no setting "colour"`},
		{"memory: 1G\n\nmemroy: 2G", `line 3: there is no setting "memroy"`},
		{"memory: 1G\npids: 3\nmemory: 2G", `line 3: "memory" is already on line 1`},
		{"memory: 1G\n\"memory\": 2G", "already on line 1"},
		{"- memory: 1G", "line 1: a mapping is expected"},
		{"just text", "a mapping is expected"},
		{"42", "a mapping is expected"},
		{"memory: 1G\n---\nmemory: 2G", "second document"},
		{"memory: 1G\n--- [\n", "line 2"},
		{"memory: [1G", "did not find"},
		{"memory: 1G\n\tpids: 3", "line 2"},
		{"1: x", "line 1: a key is not a name"},
		{"true: x", "a key is not a name"},
		{"? [a, b]\n: x", "a key is not a name"},
		{"~: x", "a key is not a name"},
		{"home: \"\xff\"", "not UTF-8"},
		{"home: a\x00b", "control characters"},
		{"# " + strings.Repeat("x", MaxSize), "more than 65536 bytes"},
		{bomb, "anchors and aliases"},
		{"home: &x agent", "line 1: anchors"},
		{"home: x\nmemory: *x", "unknown anchor"},
		{"env: &e [A]\nmounts: *e", "anchors"},
		{"<<: {memory: 1G}", "a key is not a name"},
		{"home: !!str agent", "tags such as"},
		{"home: !evil agent", "tags such as"},
		{"memory: !!python/object:os.system x", "tags such as"},
		{"!!map {memory: 1G}", "tags such as"},
		{"env: !!binary aGk=", "tags such as"},
		{strings.Repeat("[", 20000), "max depth"},
		{strings.Repeat("{a: ", 9000), "line 1"},
		{"env: [[[A]]]", "nested too deep"},
		{"home: {a: {b: {c: d}}}", "nested too deep"},
		// A person's flags
		{"writable: true", "line 1: writable cannot be set by a project: it lets the sandbox write"},
		{"apply: true", "apply cannot be set by a project"},
		{"discard: true", "discard cannot"},
		{"i-understand: true", "i-understand cannot"},
		{"nested-sandboxes: true", "nested-sandboxes cannot"},
		{"allow: example.org", "allow needs a list"},
		{"allow: [a.test, a.test]", "there twice"},
		{"allow: [1]", "allow needs a text"},
		{"secrets: [TOKEN]", "NAME@HOST"},
		{"secrets: ['@host']", "NAME@HOST"},
		{"secret: TOKEN@a.test", "there is no setting"},
		{"policy: ../policy.yaml", "not in the workspace"},
		{"policy: /etc/policy.yaml", "not in the workspace"},
		{"policy: .", "path of a file"},
		{"policy: [a.yaml]", "policy needs a text"},
		{"workspace: /", "workspace cannot"},
		{"user: 0", "user cannot"},
		{"mount: x", `there is no setting "mount"; there are allow, copy, cpus, disk, env, home, image, io, isolation, memory, min-isolation, mounts, output,`},
		{"i_understand: true", "there is no setting"},
		// Types and values
		{"version: 2", "version 2 is not known"},
		{"version: one", "line 1: version needs a whole number"},
		{"isolation: none", `there is no level "none"`},
		{"isolation: 3", "isolation needs a level"},
		{"isolation: [process]", "isolation needs a level"},
		{"min-isolation:", "min-isolation needs a level"},
		{"copy: yes", "copy needs true or false"},
		{"copy: 1", "copy needs true or false"},
		{"copy: 'true'", "copy needs true or false"},
		{"home: 123", "home needs a text"},
		{"home: ''", "home is empty"},
		{"home: ../x", "home needs a name"},
		{"home: a/b", "home needs a name"},
		{"home: .hidden", "home needs a name"},
		{"home: -flag", "home needs a name"},
		{"home: " + strings.Repeat("x", maxHomeName+1), "home needs a name"},
		{"home: null", "home needs a text"},
		{"template: \"a\\nb\"", "control characters"},
		{"template: \"a\\e[31mb\"", "control characters"},
		{"image: " + long, "image is longer"},
		{"image: /etc", "not in the workspace"},
		{"image: ../other", "not in the workspace"},
		{"image: a/../../b", "not in the workspace"},
		{"image: a/../b", "not in the workspace"},
		{"image: ~/x", "not in the workspace"},
		{"workdir: /tmp", "not in the workspace"},
		{"workdir: ..", "not in the workspace"},
		{"cpus: 0", "cpus needs a number above zero"},
		{"cpus: -1", "cpus needs a number above zero"},
		{"cpus: .nan", "cpus needs a number above zero"},
		{"cpus: .inf", "cpus needs a number above zero"},
		{"cpus: 1e9", "cpus needs a number above zero"},
		{"cpus: many", "cpus needs a number"},
		{"pids: 0", "pids needs a number above zero"},
		{"pids: -4", "pids needs"},
		{"pids: 1.5", "pids needs a whole number"},
		{"pids: 99999999999999999999", "pids needs a whole number"},
		{"pids: 0x10", "pids needs a whole number in decimal"},
		{"pids: 1_000", "pids needs a whole number in decimal"},
		{"memory: 0", "memory needs a size"},
		{"memory: -1G", "memory needs a size"},
		{"memory: 1e30", "memory needs a size"},
		{"memory: big", "memory needs a size"},
		{"memory: 2097152T", "memory needs a size"},
		{"memory: 0x10G", "memory needs a size"},
		{"memory: NaN", "memory needs a size"},
		{"memory: 1.5", "memory needs a size"},
		{"memory: {max: 1G}", "memory needs a size"},
		{"memory:", "memory needs a size"},
		{"timeout: 90", "timeout needs a time"},
		{"timeout: -1s", "timeout needs a time above zero"},
		{"timeout: 0s", "timeout needs a time above zero"},
		{"timeout: never", "timeout needs a time"},
		{"mounts: a:/b", "mounts needs a list"},
		{"mounts: {a: /b}", "mounts needs a list"},
		{"mounts: [3]", "mounts needs a text"},
		{"mounts: [data]", "needs a target"},
		{"mounts: [/etc:/data]", "not in the workspace"},
		{"mounts: ['~/x:/data']", "is not SRC:DST"},
		{"mounts: [../x:/data]", "not in the workspace"},
		{"mounts: [a/../../x:/data]", "not in the workspace"},
		{"mounts: [a:/data:rw]", "read-only"},
		{"mounts: [a:/data:rx]", "is not SRC:DST"},
		{"mounts: [a:data]", "is not SRC:DST"},
		{`mounts: ['a\:b:/data']`, "colon or a backslash"},
		{"mounts: [" + strings.Repeat("a:/b,", maxMounts+1) + "]", "more than 32"},
		{"env: A=b", "env needs a list"},
		{"env: {A: b}", "env needs a list"},
		{"env: [{A: b}]", "nested too deep"}, {"env: [[]]", "env needs NAME"},
		{"env: [1]", "env needs NAME"},
		{"env: ['=x']", "not the name"},
		{"env: ['A B=x']", "not the name"},
		{"env: [1A=x]", "not the name"},
		{"env: ['BASH_FUNC_x%%=() { :; }']", "not the name"},
		{"env: [BAILEY=0]", "not the name"},
		{"env: [A=1, A=2]", "A is there twice"},
		{"env: [A, A=2]", "A is there twice"},
		{"env: [\"A=x\\0y\"]", "NUL"},
		{"env: [" + strings.Repeat("A,", maxEnv+1) + "]", "more than 256"},
	}
	for _, tt := range tests {
		got, err := Parse([]byte(tt.file), "/p")
		if bailey.CodeOf(err) != bailey.CodeUsage || !strings.Contains(fmt.Sprint(err), tt.says) {
			t.Errorf("%q gives %+v, %v; not an error that says %q", short(tt.file), got, err, tt.says)
		}
		if !reflect.DeepEqual(got, Settings{}) {
			t.Errorf("%q gives an error and settings: %+v", short(tt.file), got)
		}
		if strings.ContainsAny(fmt.Sprint(err), "\x1b\x00\r") {
			t.Errorf("%q gives an error with control characters: %q", short(tt.file), err)
		}
	}
	if _, err := Parse([]byte("memory: 1G"), "relative"); bailey.CodeOf(err) != bailey.CodeUsage {
		t.Errorf("a relative workspace gives %v", err)
	}
}

// FuzzParse looks for files that the parser falls over, or that reach out of
// what a file may say.
func FuzzParse(f *testing.F) {
	for _, s := range []string{everything, "", "memory: 1G\n", "a: &a [*a]", "mounts: [a:/b]", "env: [A=b]", "<<: *x", "--- !!map {}\n...\n---\n", "? \n", "\"\\x00\": 1", "home: |\n  x\n"} {
		f.Add([]byte(s))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		s, err := Parse(data, "/w/p")
		if err != nil {
			if bailey.CodeOf(err) != bailey.CodeUsage || !reflect.DeepEqual(s, Settings{}) {
				t.Errorf("error %v with %+v", err, s)
			}
			if strings.ContainsAny(err.Error(), "\x1b\x00\r") {
				t.Errorf("error %q", err)
			}
			return
		}
		for _, p := range append([]string{s.Image, s.Workdir, policyPath(s)}, sources(s)...) {
			if p != "" && (!within(p, "/w/p") || path.Clean(p) != p) {
				t.Errorf("%q reaches out of the workspace", p)
			}
		}
		if s.Writable != nil || s.Apply || s.Nested || s.IUnderstand || s.OwnPolicy != "" || s.Offline || s.PassEnv != nil {
			t.Errorf("a file set what only a person may: %+v", s)
		}
		l := s.Limits
		if l.CPUs < 0 || l.CPUs != l.CPUs || l.Memory < 0 || l.Pids < 0 || l.Disk < 0 || l.IO < 0 || l.Output < 0 || l.Timeout < 0 {
			t.Errorf("limits below zero: %+v", l)
		}
		user := Settings{}
		merged, _, err := Merge(user, s, bailey.DefaultLimits, "/w/p")
		if err == nil {
			if why := wider(merged, user, bailey.DefaultLimits, "/w/p"); why != "" {
				t.Error(why)
			}
		}
	})
}

func sources(s Settings) (out []string) {
	for _, m := range s.Mounts {
		out = append(out, m.Source)
	}
	return out
}

func policyPath(s Settings) string {
	if s.Policy == nil {
		return ""
	}
	return s.Policy.Path
}
