package main

import (
	"io"

	"golang.org/x/sys/unix"
)

// screenSize returns the size of the terminal that w writes to, in characters; false
// where it writes to none.
func screenSize(w io.Writer) (rows, cols int, terminal bool) {
	out, ok := w.(*output)
	if !ok {
		return 0, 0, false
	}
	size, err := unix.IoctlGetWinsize(int(out.file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0, false
	}
	if size.Row < 4 || size.Col < 20 {
		return 24, 80, true // a terminal that does not say, or is of no use
	}
	return int(size.Row), int(size.Col), true
}
