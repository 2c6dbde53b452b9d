package run

import "testing"

func TestAtLeast(t *testing.T) {
	for release, want := range map[string]bool{
		"6.13.0": true, "6.13-rc1": true, "6.18.44-x": true, "7.0": true, "6.12.9-amd64": false, "5.99.1": false, "": false, "x.y": false, "6": false,
	} {
		if got := atLeast(release, 6, 13); got != want {
			t.Errorf("%q: %v", release, got)
		}
	}
}
