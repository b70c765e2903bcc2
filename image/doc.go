// Package image turns state into bytes and back: for a director that hands its
// connections to a newer program, and for the file that one which was killed
// starts from.
//
// A Codec goes over a value's fields, one call each, the same for both ways, so
// that what is written and what is read cannot part. file.go has the frame around
// them: magic, version, and parts with length and checksum.
//
// Whatever is read is taken for hostile: lengths are bounded by the bytes that
// are there, and nothing is allocated for more.
package image
