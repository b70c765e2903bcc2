package capture

import (
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
)

// Options of a Reader. The zero value is fine.
type Options struct {
	// Progress, if not nil, is called from within Next whenever another MiB has
	// been read, and at the end: with the bytes of all files that were read, as
	// they lie on the disk, and how many there are. total is -1 where that is not
	// known, as of standard input and FIFOs.
	Progress func(read, total int64)

	// Stdin is what the name "-" stands for; nil: os.Stdin.
	Stdin io.Reader
}

// maxFiles is how many files are read at once.
const maxFiles = 512

// Reader reads the packets of one capture, which may lie in several files, in the
// order of their times. It is for one goroutine.
type Reader struct {
	sources []*source
	heap    []*source // those that have a packet, the earliest first
	pending *source   // whose packet Next returned last
	warn    warnings
	err     error // of sources that ended in one

	progress       func(read, total int64)
	read, reported int64 // bytes
	total          int64
	ended          bool
}

// Open opens the files of one capture: pcap or pcapng, packed with gzip, zstd or
// not, what each is its first bytes tell. The name "-" is standard input. An error
// names the file; of a link type that is not read it gives name and number.
func Open(paths []string, o Options) (*Reader, error) {
	if len(paths) == 0 {
		return nil, errors.New("no capture file named")
	}
	if len(paths) > maxFiles {
		return nil, fmt.Errorf("%d capture files, at most %d are read at once: join some with mergecap", len(paths), maxFiles)
	}
	if i := slices.Index(paths, "-"); i >= 0 && slices.Contains(paths[i+1:], "-") {
		return nil, errors.New("standard input (-) is named twice: it can be read once")
	}
	r := &Reader{progress: o.Progress}
	var seen []os.FileInfo
	for _, path := range paths {
		in, size, err := openFile(path, o, &seen)
		if err == nil {
			var closers []io.Closer
			if c, ok := in.(io.Closer); ok && path != "-" {
				closers = []io.Closer{c}
			}
			err = r.add(path, in, size, closers)
		}
		if err != nil {
			r.Close()
			return nil, err
		}
	}
	r.begin()
	return r, nil
}

// openFile opens a path and tells its size, -1 where it is none.
func openFile(path string, o Options, seen *[]os.FileInfo) (io.Reader, int64, error) {
	if path == "-" {
		if o.Stdin != nil {
			return o.Stdin, -1, nil
		}
		return os.Stdin, -1, nil
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, 0, err
	}
	info, err := f.Stat()
	if err == nil && info.IsDir() {
		err = fmt.Errorf("%s: a directory: name the capture files in it", path)
	}
	if err != nil {
		f.Close()
		return nil, 0, err
	}
	if !info.Mode().IsRegular() {
		return f, -1, nil
	}
	for _, other := range *seen {
		if os.SameFile(info, other) {
			f.Close()
			return nil, 0, fmt.Errorf("%s: this file is named twice", path)
		}
	}
	*seen = append(*seen, info)
	return f, info.Size(), nil
}

// NewReader reads one file from a stream.
func NewReader(in io.Reader, o Options) (*Reader, error) {
	r := &Reader{progress: o.Progress}
	if err := r.add("capture", in, -1, nil); err != nil {
		r.Close()
		return nil, err
	}
	r.begin()
	return r, nil
}

// add opens a file. Its closers are the reader's even when it fails.
func (r *Reader) add(name string, in io.Reader, size int64, closers []io.Closer) error {
	s := &source{File: File{Name: name}, index: len(r.sources), warn: &r.warn, closers: closers}
	r.sources = append(r.sources, s)
	if size < 0 || r.total < 0 {
		r.total = -1
	} else {
		r.total += size
	}
	return s.open(&counted{in, &r.read})
}

// counted counts the bytes that are read of a file.
type counted struct {
	io.Reader
	n *int64
}

func (c *counted) Read(p []byte) (int, error) {
	n, err := c.Reader.Read(p)
	*c.n += int64(n)
	return n, err
}

// begin has every source show its first packet.
func (r *Reader) begin() {
	for _, s := range r.sources {
		r.advance(s)
	}
}

// advance reads a source's next packet and gives it its place.
func (r *Reader) advance(s *source) {
	s.next()
	if s.err == nil {
		r.push(s)
	} else if s.err != io.EOF {
		r.err = errors.Join(r.err, s.err)
	}
}

// Next fills rec with the next packet, and returns io.EOF when there is none. A
// file that is damaged in the middle ends there: the others are read on, and then
// Next returns an error that says where it was. Of a file that just ends too early
// there is a warning. rec.Data is valid until the next call, rec.Comments for good.
func (r *Reader) Next(rec *Record) error {
	if s := r.pending; s != nil {
		r.pending = nil
		r.advance(s)
	}
	if r.progress != nil && r.read-r.reported >= 1<<20 {
		r.report()
	}
	if len(r.heap) == 0 {
		if r.progress != nil && !r.ended {
			r.report()
		}
		r.ended = true
		if r.err != nil {
			return r.err
		}
		return io.EOF
	}
	r.pending = r.pop()
	*rec = r.pending.rec
	return nil
}

func (r *Reader) report() {
	r.reported = r.read
	r.progress(r.read, r.total)
}

// Warnings returns what was wrong with what has been read so far, at most 256
// kinds of things.
func (r *Reader) Warnings() []Warning { return slices.Clone(r.warn.list) }

// Files returns what is known of the files.
func (r *Reader) Files() []File {
	files := make([]File, len(r.sources))
	for i, s := range r.sources {
		files[i] = s.File
	}
	return files
}

// Close closes the files, standard input apart.
func (r *Reader) Close() error {
	var errs []error
	for _, s := range r.sources {
		for _, c := range s.closers {
			errs = append(errs, c.Close())
		}
		s.closers = nil
	}
	return errors.Join(errs...)
}

// before is the order of the heap: by time, packets of one time by file.
func before(a, b *source) bool {
	return a.rec.Time < b.rec.Time || a.rec.Time == b.rec.Time && a.index < b.index
}

func (r *Reader) push(s *source) {
	h := append(r.heap, s)
	i := len(h) - 1
	for up := (i - 1) / 2; i > 0 && before(h[i], h[up]); up = (i - 1) / 2 {
		h[i], h[up] = h[up], h[i]
		i = up
	}
	r.heap = h
}

func (r *Reader) pop() *source {
	h := r.heap
	first, last := h[0], len(h)-1
	h[0] = h[last]
	h = h[:last]
	for i := 0; ; {
		least := i
		for _, down := range [2]int{2*i + 1, 2*i + 2} {
			if down < last && before(h[down], h[least]) {
				least = down
			}
		}
		if least == i {
			break
		}
		h[i], h[least] = h[least], h[i]
		i = least
	}
	r.heap = h
	return first
}
