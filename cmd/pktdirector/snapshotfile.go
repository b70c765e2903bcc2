package main

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// readSnapshot returns what is in the file at path, which user id has written: no more
// than most bytes. fs.ErrNotExist: there is none. What is no file, or what others may have
// written, is not read.
func readSnapshot(path string, id uint32, most int64) ([]byte, error) {
	// No link is followed, and nobody is waited for who would write into a pipe.
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if errors.Is(err, syscall.ELOOP) {
		return nil, errors.New("is a symbolic link, must be a file")
	}
	if err != nil {
		return nil, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	if why := unlikeSnapshot(info, id); why != "" {
		return nil, errors.New(why)
	}
	if info.Size() > most {
		return nil, fmt.Errorf("has %d bytes, of at most %d that may be read on this host", info.Size(), most)
	}
	data := make([]byte, info.Size())
	if _, err := io.ReadFull(f, data); err != nil {
		return nil, err
	}
	return data, nil
}

// unlikeSnapshot says why a file is none that a director has written.
func unlikeSnapshot(info fs.FileInfo, id uint32) string {
	stat, _ := info.Sys().(*syscall.Stat_t)
	switch mode := info.Mode(); {
	case !mode.IsRegular():
		return "is a " + kindOfFile(mode) + ", must be a file"
	case stat == nil || stat.Uid != id && stat.Uid != 0:
		return fmt.Sprintf("belongs to another user (mode %s), must belong to user %d or root", mode, id)
	case mode.Perm()&0o022 != 0:
		return fmt.Sprintf("has mode %s: others may have written it", mode)
	}
	return ""
}

func kindOfFile(mode fs.FileMode) string {
	switch {
	case mode.IsDir():
		return "folder"
	case mode&fs.ModeNamedPipe != 0:
		return "named pipe"
	case mode&fs.ModeSocket != 0:
		return "socket"
	}
	return "device"
}

// keptAside is how many snapshots that could not be used are kept.
const keptAside = 3

// setAside gives a snapshot that cannot be used another name, at which it can be looked
// into, and removes the oldest of those that were set aside before.
func setAside(path string, now time.Time) (to string, err error) {
	to = path + ".damaged-" + now.UTC().Format("20060102T150405.000Z")
	if err := os.Rename(path, to); err != nil {
		return "", err
	}
	entries, err := os.ReadDir(filepath.Dir(path))
	if err != nil {
		return to, nil // none to be found, none to be removed
	}
	var aside []string
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), filepath.Base(path)+".damaged-") {
			aside = append(aside, filepath.Join(filepath.Dir(path), e.Name()))
		}
	}
	slices.Sort(aside) // by their times
	for _, old := range aside[:max(0, len(aside)-keptAside)] {
		_ = os.Remove(old) // what is no file may stay
	}
	return to, nil
}

// replaceFile puts what write writes in place of the file at path, for its owner alone:
// whoever reads path finds the old file or the new one, also when the program is killed
// or the power fails. What a killed one left of its new file makes way.
func replaceFile(path string, write func(io.Writer) error) (err error) {
	fresh := freshName(path)
	if err := os.Remove(fresh); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	f, err := os.OpenFile(fresh, os.O_WRONLY|os.O_CREATE|os.O_EXCL|syscall.O_NOFOLLOW, 0o600)
	if err != nil {
		return err
	}
	const atOnce = 1 << 18
	w := bufio.NewWriterSize(f, atOnce)
	err = write(w)
	if err == nil {
		err = w.Flush()
	}
	if err == nil {
		err = f.Sync()
	}
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(fresh, path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(fresh))
	}
	dir, err := os.Open(filepath.Dir(path))
	if err != nil {
		return err
	}
	return errors.Join(dir.Sync(), dir.Close())
}

// freshName is the name of a file that is being written.
func freshName(path string) string { return path + ".new" }
