// Package folder keeps Bailey's data folder (BAILEY_HOME): where it is, how
// it is laid out, and the life of the runs in it.
//
//	runs/<id>/                  one run: run.json, lock, layers/, journal
//	homes/<project>/<NAME>/     the persistent HOME of --home NAME, one per project
//	cache/                      what can be made again
//	trust/                      hashes of project files that a person has trusted
//
// It touches nothing outside that folder. Folders are made when they are
// needed, with mode 0700, and a data folder that somebody else owns or could
// write to is refused: everything below it decides what Bailey later does to
// the host. Layers hold what sandboxes wrote, so removal trusts no name, no
// mode and no depth found there.
package folder
