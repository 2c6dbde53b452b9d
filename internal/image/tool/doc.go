// Package tool runs `baileyd image …`: what reads images, layers and archives
// that nobody vouches for does so in a process of its own, apart from the
// engine. The process ends with the context it was started with, and prints its
// result or a Bailey error as JSON.
package tool
