//go:build linux

package cgroup

import (
	"strings"
	"testing"
)

const oomRecord = "6,1234,5678901,-;oom-kill:constraint=CONSTRAINT_MEMCG,nodemask=(null),cpuset=/,mems_allowed=0,oom_memcg=/a/bailey-x,task_memcg=/a/bailey-x,task=NAME,pid=123,uid=0\n SUBSYSTEM=none\n"

func TestVictimOf(t *testing.T) {
	with := func(name string) string { return strings.Replace(oomRecord, "NAME", name, 1) }
	tests := []struct {
		what, record, want string
		ok                 bool
	}{
		{"plain", with("python3"), "python3", true},
		{"comma in the name", with("a,pid=1,uid=9"), "a,pid=1,uid=9", true},
		{"another group's words in the name", with("z,oom_memcg=/b,"), "z,oom_memcg=/b,", true},
		{"escaped bytes", with(`\x1b[2J`), `\x1b[2J`, true},
		{"raw escape", with("\x1b[2J"), "", false},
		{"high bytes", with("\xff"), "", false},
		{"too long", with(strings.Repeat("a", 61)), "", false},
		{"empty name", with(""), "", true},
		{"another group", strings.ReplaceAll(with("sh"), "bailey-x", "bailey-y"), "", false},
		{"a longer name", strings.ReplaceAll(with("sh"), "bailey-x", "bailey-xx"), "", false},
		{"a group above", strings.Replace(with("sh"), "oom_memcg=/a/bailey-x", "oom_memcg=/a", 1), "", false},
		{"a group below", strings.Replace(with("sh"), "oom_memcg=/a/bailey-x", "oom_memcg=/a/bailey-x/sub", 1), "", false},
		{"whole machine", strings.Replace(with("sh"), "CONSTRAINT_MEMCG", "CONSTRAINT_NONE", 1), "", false},
		{"written by a program", "1" + with("sh")[1:], "sh", true}, // priority 1 is still the kernel's
		{"written by a program, facility user", "14" + with("sh")[1:], "", false},
		{"in the middle of another message", strings.Replace(with("sh"), ";oom", ";x[1]: oom", 1), "", false},
		{"cut off", with("sh")[:150], "", false},
		{"on a second line", "6,1,1,-;hello\n" + with("sh"), "", false},
		{"nothing", "", "", false},
	}
	for _, tt := range tests {
		got, ok := victimOf(tt.record, "bailey-x")
		if got != tt.want || ok != tt.ok {
			t.Errorf("%s: %q, %v; want %q, %v", tt.what, got, ok, tt.want, tt.ok)
		}
	}
}

func FuzzVictimOf(f *testing.F) {
	f.Add(oomRecord)
	f.Add("6,1,1,-;oom-kill:constraint=CONSTRAINT_MEMCG,,oom_memcg=,task_memcg=,task=,pid=")
	f.Add("30,1,1,-;\n,\x00")
	f.Fuzz(func(t *testing.T, record string) {
		name, ok := victimOf(record, "bailey-x")
		if !ok && name != "" {
			t.Errorf("%q without ok", name)
		}
		if len(name) > 60 {
			t.Errorf("%d bytes", len(name))
		}
		for _, c := range []byte(name) {
			if c < ' ' || c > '~' {
				t.Errorf("byte %#x", c)
			}
		}
		if ok && !strings.Contains(record, "bailey-x,task_memcg=") {
			t.Error("the group is not in it")
		}
	})
}

// FuzzNames puts any name of a process into a record: whatever it is, the
// record stays one of its own group and of no other.
func FuzzNames(f *testing.F) {
	f.Add(",oom_memcg=/b/bailey-y,task_memcg=")
	f.Fuzz(func(t *testing.T, name string) {
		name = strings.Map(func(r rune) rune { // as the kernel escapes it
			if r < ' ' || r > '~' {
				return '_'
			}
			return r
		}, name)
		if len(name) > 15 {
			name = name[:15]
		}
		record := strings.Replace(oomRecord, "NAME", name, 1)
		if got, ok := victimOf(record, "bailey-x"); !ok || got != name {
			t.Errorf("%q, %v; want %q", got, ok, name)
		}
		if _, ok := victimOf(record, "bailey-y"); ok {
			t.Error("it is taken for another group's")
		}
	})
}
