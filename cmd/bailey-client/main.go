// Command bailey-client is the commands of bailey that speak to the daemon; bailey
// becomes it for those. It is a program of its own so that HTTP does not slow down
// the commands that need none.
package main

import (
	"os"

	"github.com/bailey-sandbox/bailey/internal/cli/client"
)

func main() { os.Exit(client.Main(os.Args[1:])) }
