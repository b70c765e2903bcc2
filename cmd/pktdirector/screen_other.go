//go:build !linux

package main

import "io"

// screenSize knows no terminals here.
func screenSize(io.Writer) (rows, cols int, terminal bool) { return 0, 0, false }
