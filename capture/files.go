package capture

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// Limits say when a written file ends and how many are kept. With the zero value
// there is one file without an end.
type Limits struct {
	Bytes   int64         // of a file; one packet is always taken
	Packets uint64        // of a file
	Age     time.Duration // from a file's first packet, by the packets' times
	// Files is how many files are kept: with 1, writing ends with ErrFull at the
	// file's end; with more, the oldest makes room for the next (a ring); with 0
	// all are kept.
	Files int
}

func (l Limits) none() bool { return l.Bytes == 0 && l.Packets == 0 && l.Age == 0 }

// Files writes pcapng files one after another. It is for one goroutine.
type Files struct {
	path  string
	o     WriterOptions
	l     Limits
	ifs   []Interface
	f     *os.File
	w     *Writer
	made  []string // that still exist, the oldest first
	n     int      // files begun
	count uint64   // packets of this file
	first int64    // ns, its first packet
	err   error
}

// CreateFiles creates the file path, which others than the user may not read, for
// it holds what others said. With limits and more than one file, their names are
// the path's with _00001, _00002 and so on before the extension; files of these
// names are overwritten, and only files of this run make room.
func CreateFiles(path string, o WriterOptions, l Limits) (*Files, error) {
	switch {
	case l.Bytes < 0 || l.Age < 0 || l.Files < 0:
		return nil, fmt.Errorf("%s: limits of a capture file must not be negative", path)
	case l.Files > 1 && l.none():
		return nil, fmt.Errorf("%s: %d files need a size, an age or a number of packets at which one ends", path, l.Files)
	}
	f := &Files{path: path, o: o, l: l}
	if err := f.open(); err != nil {
		return nil, err
	}
	return f, nil
}

// name is that of the n-th file, from 1.
func (f *Files) name(n int) string {
	if f.l.none() || f.l.Files == 1 {
		return f.path
	}
	ext := filepath.Ext(f.path)
	return fmt.Sprintf("%s_%05d%s", strings.TrimSuffix(f.path, ext), n, ext)
}

// open begins the next file.
func (f *Files) open() error {
	name := f.name(f.n + 1)
	file, err := os.OpenFile(name, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	f.n++
	w, err := NewWriter(file, f.o)
	for i := 0; err == nil && i < len(f.ifs); i++ {
		_, err = w.AddInterface(f.ifs[i])
	}
	if err != nil {
		file.Close()
		return fmt.Errorf("%s: %w", name, err)
	}
	f.f, f.w, f.count = file, w, 0
	f.made = append(f.made, name)
	for f.l.Files > 1 && len(f.made) > f.l.Files {
		if err := os.Remove(f.made[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		f.made = f.made[1:]
	}
	return nil
}

// AddInterface declares an interface of this file and all that follow, as
// Writer.AddInterface does.
func (f *Files) AddInterface(i Interface) (int, error) {
	if f.err != nil {
		return 0, f.err
	}
	n, err := f.w.AddInterface(i)
	if err == nil {
		f.ifs = append(f.ifs, i)
	}
	return n, err
}

// Write writes a packet, into the next file if this one has reached its limit. An
// error of a file names it and stays.
func (f *Files) Write(p *Packet) error {
	if f.err != nil {
		return f.err
	}
	if f.ends(p) {
		if f.err = f.next(); f.err != nil {
			return f.err
		}
	}
	if f.count == 0 {
		f.first = p.Time
	}
	if err := f.w.Write(p); err != nil {
		if f.w.err != nil {
			f.err = fmt.Errorf("%s: %w", f.f.Name(), err)
			return f.err
		}
		return err
	}
	f.count++
	return nil
}

// ends reports whether a packet belongs in the next file.
func (f *Files) ends(p *Packet) bool {
	if f.count == 0 {
		return false
	}
	statistics := int64(len(f.ifs) * statisticsLen)
	return f.l.Bytes > 0 && f.w.Size()+statistics+f.w.length(p) > f.l.Bytes ||
		f.l.Packets > 0 && f.count >= f.l.Packets ||
		f.l.Age > 0 && p.Time-f.first >= int64(f.l.Age)
}

// next ends a file and begins the next.
func (f *Files) next() error {
	if f.l.Files == 1 {
		return fmt.Errorf("%s: %w: %d packets, %d bytes", f.path, ErrFull, f.count, f.w.Size())
	}
	if err := f.finish(); err != nil {
		return err
	}
	return f.open()
}

func (f *Files) finish() error {
	if f.f == nil {
		return nil
	}
	err := errors.Join(f.w.Finish(), f.f.Close())
	if err != nil {
		err = fmt.Errorf("%s: %w", f.f.Name(), err)
	}
	f.f = nil
	return err
}

// Lost counts packets of an interface that were not written, in the file that is
// being written.
func (f *Files) Lost(iface int, n uint64) { f.w.Lost(iface, n) }

// Flush writes what is still to be written to the file.
func (f *Files) Flush() error {
	if f.err != nil {
		return f.err
	}
	return f.w.Flush()
}

// Names returns the files that there are, the oldest first.
func (f *Files) Names() []string { return append([]string(nil), f.made...) }

// Close completes the last file. Whatever is asked for afterwards is refused with
// os.ErrClosed; a second Close does nothing.
func (f *Files) Close() error {
	err := f.finish()
	if f.err == nil {
		f.err = fmt.Errorf("%s: %w", f.path, os.ErrClosed)
	}
	return err
}
