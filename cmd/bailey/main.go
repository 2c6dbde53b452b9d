// Command bailey is the command line of Bailey; see `bailey help`.
package main

import (
	"os"

	"github.com/bailey-sandbox/bailey/internal/cli"
)

func main() { os.Exit(cli.Main(os.Args[1:])) }
