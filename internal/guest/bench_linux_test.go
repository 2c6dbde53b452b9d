//go:build linux && (amd64 || arm64)

package guest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
)

// staticTrue builds a program that ends at once and needs no loader, so that
// starting it costs what starting costs.
func staticTrue(b *testing.B) string {
	dir := b.TempDir()
	os.Chmod(dir, 0o755)
	src, bin := filepath.Join(dir, "true.c"), filepath.Join(dir, "true")
	os.WriteFile(src, []byte("void _start(void){__asm__ volatile(\"mov $60,%eax; xor %edi,%edi; syscall\");}\n"), 0o644)
	if out, err := exec.Command("cc", "-nostdlib", "-static", "-O2", "-o", bin, src).CombinedOutput(); err != nil {
		b.Skipf("needs a C compiler for amd64: %v %s", err, out)
	}
	return bin
}

// BenchmarkExec compares a command in a live sandbox, start to known end, with
// the same program started by os/exec on the host, in one run.
func BenchmarkExec(b *testing.B) {
	bin := staticTrue(b)
	for _, prog := range []string{bin, "/bin/true"} {
		name := "static"
		if prog != bin {
			name = "dynamic"
		}
		b.Run(name+"/host", func(b *testing.B) {
			for b.Loop() {
				if err := exec.Command(prog).Run(); err != nil {
					b.Fatal(err)
				}
			}
		})
		for _, mode := range []string{"files", "pipes", "stream"} {
			b.Run(name+"/sandbox-"+mode, func(b *testing.B) {
				c := startSandbox(b, "--lease").client(mode == "stream")
				ctx := testContext(b)
				spec := ExecSpec{Argv: []string{prog}}
				if mode == "files" { // what os/exec does: all three are /dev/null
					spec.Files = &[3]*os.File{}
				}
				for i := 0; b.Loop(); i++ {
					spec.ID = fmt.Sprint(i)
					p, err := c.Exec(ctx, spec)
					if err != nil {
						b.Fatal(err)
					}
					if end, err := p.Wait(ctx); err != nil || end.ExitCode != 0 {
						b.Fatal(end, err)
					}
					p.Close()
				}
			})
		}
	}
}
