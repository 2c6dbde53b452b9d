package linux

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"testing"

	"github.com/bailey-sandbox/bailey"
	"github.com/bailey-sandbox/bailey/internal/guest"
)

// BenchmarkStay makes a sandbox that stays, runs `true` in it and destroys it, and
// tells how long each took.
func BenchmarkStay(b *testing.B) {
	for _, warm := range []bool{false, true} {
		for _, outlet := range []bool{false, true} {
			b.Run("warm="+strconv.FormatBool(warm)+"/outlet="+strconv.FormatBool(outlet), func(b *testing.B) {
				y := newYard(b, bailey.IsolationContainer)
				y.Outlet = outlet
				d := y.driver()
				if warm {
					d.Warm(8, true)
				}
				defer d.Close()
				var made, spoken, ran, gone laps
				n := 0
				for b.Loop() {
					n++
					spec := y.spec()
					spec.ID += strconv.Itoa(n)
					layer := filepath.Join(y.Dir, "layers", strconv.Itoa(n))
					for _, name := range []string{"upper", "work"} {
						os.MkdirAll(filepath.Join(layer, name), 0o755)
					}
					spec.Root.Base.Layer = layer
					spec.Root.Places = programPlaces()
					made.begin()
					in, err := d.Create(context.Background(), spec)
					if err != nil {
						b.Fatal(err)
					}
					made.end()
					spoken.begin()
					s, err := guest.NewSocket(in.Agent())
					if err != nil {
						b.Fatal(err)
					}
					c, err := guest.NewClient(context.Background(), s, guest.ClientOptions{})
					if err != nil {
						b.Fatal(err)
					}
					spoken.end()
					ran.begin()
					if _, err := c.Run(context.Background(), guest.ExecSpec{ID: "x", Argv: []string{"/bin/true"}}, nil, 100); err != nil {
						b.Fatal(err)
					}
					ran.end()
					gone.begin()
					if err := in.Destroy(context.Background()); err != nil {
						b.Fatal(err)
					}
					gone.end()
					c.Close()
				}
				made.report(b, "create-us")
				spoken.report(b, "hello-us")
				ran.report(b, "run-us")
				gone.report(b, "destroy-us")
			})
		}
	}
}
