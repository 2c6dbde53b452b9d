package folder

// Foreign is how an ordinary user gets at files of subordinate ids, which a
// sandbox with several users has made and the user may not touch. It is set
// once, before anything else, by whoever links a driver that can map those ids;
// its functions are nil otherwise.
var Foreign struct {
	Remove  func(path string) error // removes a folder with such files in it
	Reclaim func(path string) error // makes the caller own all files in a folder
}
