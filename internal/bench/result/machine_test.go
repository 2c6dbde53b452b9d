package result

import "testing"

func TestMachineFiles(t *testing.T) {
	cpuinfo := "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Some CPU @ 2.0: fast\nflags\t: a b\nprocessor\t: 1\nmodel name\t: Another\n"
	for _, tc := range []struct{ what, got, want string }{
		{"processor", cpuModel([]byte(cpuinfo)), "Some CPU @ 2.0: fast"},
		{"processor without a name", cpuModel([]byte("processor\t: 0\nBogoMIPS\t: 50\n")), ""},
		{"system", osName([]byte("NAME=Debian\nPRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\n")), "Debian GNU/Linux 12 (bookworm)"},
		{"system in single quotes", osName([]byte("PRETTY_NAME='Alpine'")), "Alpine"},
		{"no system", osName(nil), ""},
		{"a known file system", fileSystem(0xef53), "ext4"},
		{"an unknown one", fileSystem(0x1234), "0x1234"},
	} {
		if tc.got != tc.want {
			t.Errorf("%s: %q, want %q", tc.what, tc.got, tc.want)
		}
	}
}

func TestMemField(t *testing.T) {
	text := []byte("55d0-7ffe ---p 00000000 00:00 0 [rollup]\nRss:                1100 kB\nPrivate_Clean:         0 kB\nPrivate_Dirty:       612 kB\nBad: x kB\n")
	for name, want := range map[string]int64{"Private_Dirty": 612 << 10, "Private_Clean": 0, "Private": -1, "Bad": -1, "": -1} {
		if got := MemField(text, name); got != want {
			t.Errorf("%s is %d, want %d", name, got, want)
		}
	}
}
