// Command testrun is the part of ./scripts/test that runs, counts and judges. It
// checks the sources (format, vet, linters, builds for the other targets), runs
// the tests in passes, and reads what `go test -json` prints. A pass is one user
// and one way of building: root, root under the race detector and an ordinary
// user made for the occasion; or, when started by an ordinary user, that user
// with and without the race detector.
//
// It fails when a test failed, when a test that the sources declare did not run,
// when one was skipped though it could have run (package testneeds), and when a
// pass left mounts, files or processes behind.
//
// It writes below .cache and the system's temporary folder, and as root makes
// and removes one user. It is no part of the product.
package main
