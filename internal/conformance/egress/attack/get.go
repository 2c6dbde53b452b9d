package main

import (
	"fmt"
	"io"
	"net/http"
	"os"
	"strings"
)

// fetch is net/http as every Go program has it: attack get URL [HEADER].
func fetch(args []string) int {
	req, err := http.NewRequest("GET", args[0], nil)
	if err == nil {
		if len(args) > 1 {
			name, value, _ := strings.Cut(args[1], ": ")
			req.Header.Set(name, value)
		}
		var resp *http.Response
		if resp, err = http.DefaultClient.Do(req); err == nil {
			defer resp.Body.Close()
			if _, err = io.Copy(os.Stdout, resp.Body); err == nil && resp.StatusCode != http.StatusOK {
				err = fmt.Errorf("%s", resp.Status)
			}
		}
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}
