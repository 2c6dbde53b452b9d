// Command vmkit makes the kit of the microVM level: bin/bailey-microvm.kit.
// ./scripts/levels calls it, after ./scripts/build.
package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/bailey-sandbox/bailey/internal/microvm/kit"
	"github.com/bailey-sandbox/bailey/internal/microvm/pack"
)

func main() {
	if len(os.Args) != 4 {
		fmt.Fprintln(os.Stderr, "usage: vmkit KERNEL-FOLDER MONITOR PROGRAMS-FOLDER")
		os.Exit(2)
	}
	dir := os.Args[3]
	m, err := pack.Pack(filepath.Join(dir, kit.FileName), pack.Sources{
		Kernel: os.Args[1], Monitor: os.Args[2], Boot: filepath.Join(dir, "bailey-boot"), Agent: filepath.Join(dir, "bailey-init")})
	if err != nil {
		fmt.Fprintln(os.Stderr, "vmkit:", err)
		os.Exit(1)
	}
	fmt.Printf("%s: Linux %s, %s\n", kit.FileName, m.Kernel, m.Digest[:12])
}
