// Package levels puts together the drivers of a Linux host, one for each isolation
// level of this version. Whoever makes sandboxes takes them from here, so that a
// level is there for all or for nobody.
//
// It may import every driver, and nothing that uses one.
package levels
