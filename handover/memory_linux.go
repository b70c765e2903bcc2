package handover

import (
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

// NewMemory returns a file that stands in no folder, in memory, and goes with the last
// that has it open. name is for people who list open files.
func NewMemory(name string) (*os.File, error) {
	fd, err := unix.MemfdCreate(name, unix.MFD_CLOEXEC)
	if err != nil {
		return nil, fmt.Errorf("memfd_create: %w", err)
	}
	return os.NewFile(uintptr(fd), name), nil
}

// Map returns what is in a file, in place, until release is called. Nobody may make the
// file shorter meanwhile.
func Map(f *os.File) (b []byte, release func() error, err error) {
	info, err := f.Stat()
	if err != nil {
		return nil, nil, err
	}
	if info.Size() == 0 {
		return nil, func() error { return nil }, nil
	}
	fd, err := number(f)
	if err != nil {
		return nil, nil, err
	}
	if b, err = unix.Mmap(fd, 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED|unix.MAP_POPULATE); err != nil {
		return nil, nil, fmt.Errorf("mapping %d bytes: %w", info.Size(), err)
	}
	return b, func() error { return unix.Munmap(b) }, nil
}
