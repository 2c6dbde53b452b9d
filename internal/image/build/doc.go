// Package build makes images from Dockerfiles. It reads a file, decides which
// stages are needed, and makes a layer of each step that changes files, or finds
// the layer that the same step has made before over the same ground.
//
// It runs nothing itself: commands run in a Machine's sandboxes, and what reads
// archives that nobody vouches for is behind Hands. It works in the folders it is
// given and in the image store.
package build
