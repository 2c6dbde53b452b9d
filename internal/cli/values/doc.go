// Package values has the flags whose values are more than a text: sizes, times,
// isolation levels. Each says what is wrong with a value and how to write it.
package values
