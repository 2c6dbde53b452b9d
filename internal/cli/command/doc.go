// Package command is what the command lines of Bailey's programs share: a table of
// commands, how their flags are read, and the one form in which errors are shown.
package command
