# For those who type make: the same scripts, nothing more.
.PHONY: build test demo fetch torture nested
build test demo fetch torture:
	./scripts/$@
nested:
	./scripts/nested -both ./internal/driver/linux
