# For those who type make: the same scripts, nothing more.
.PHONY: build test demo fetch
build test demo fetch:
	./scripts/$@
