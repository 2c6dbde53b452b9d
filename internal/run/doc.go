// Package run is `bailey run`: one command in a fresh sandbox over a folder,
// from the plan of what it may see to the record of what it did.
//
// It is the way from the rooms that know things (workspace, hostview, image
// descriptions) to the driver, without engine or daemon: the sandbox lives as
// long as this process and not a moment longer. What the command changed stays
// in the run's folder of the data folder, for package changes.
//
// It touches the data folder, and the host through the driver.
package run
