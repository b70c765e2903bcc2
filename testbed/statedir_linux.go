package testbed

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"syscall"

	"golang.org/x/sys/unix"
)

// stateDir is the directory of this user's keepers' sockets. It exists only
// while a lab is up. Whoever makes or removes something in it holds its lock,
// so that a socket on which nobody listens is always one that a dead keeper
// left behind, never one that is just being made.
type stateDir struct {
	path    string
	setting string // the environment variable that leads elsewhere
}

// maxSocketPath is how many bytes the path of a unix socket may have
// (sockaddr_un less the terminating zero).
const maxSocketPath = 107

// findStateDir says where the directory is, whether it exists or not.
func findStateDir() (stateDir, error) {
	base, name, setting := os.Getenv("XDG_RUNTIME_DIR"), "pktdirector", "XDG_RUNTIME_DIR"
	if st, err := os.Stat(base); base == "" || err != nil || owner(st) != os.Getuid() {
		base, name, setting = os.TempDir(), fmt.Sprintf("pktdirector-%d", os.Getuid()), "TMPDIR"
	}
	base, err := filepath.Abs(base)
	return stateDir{filepath.Join(base, name), setting}, err
}

// socket returns the path of a lab's socket.
func (d stateDir) socket(lab string) (string, error) {
	path := filepath.Join(d.path, lab+".sock")
	if len(path) > maxSocketPath {
		return "", fmt.Errorf("lab %s: its socket would be %s, %d bytes, and a unix socket's path may have %d: let %s name a folder with a shorter path",
			lab, path, len(path), maxSocketPath, d.setting)
	}
	return path, nil
}

// make makes the directory unless it exists.
func (d stateDir) make() error {
	if err := os.Mkdir(d.path, 0o700); err != nil && !errors.Is(err, os.ErrExist) {
		return err
	}
	return d.check()
}

// check refuses a directory that somebody else has made, who would get the
// calls that are meant for a keeper.
func (d stateDir) check() error {
	st, err := os.Lstat(d.path)
	if err != nil {
		return err
	}
	if !st.IsDir() || owner(st) != os.Getuid() || st.Mode().Perm() != 0o700 {
		return fmt.Errorf("%s: is not a directory that only you (user %d) may enter: remove it", d.path, os.Getuid())
	}
	return nil
}

func owner(st os.FileInfo) int {
	if sys, ok := st.Sys().(*syscall.Stat_t); ok {
		return int(sys.Uid)
	}
	return -1
}

// locked calls fn while it holds the directory's lock, and removes the
// directory when it is empty then. A directory that does not exist is made if
// create is set, else the error is os.ErrNotExist.
func (d stateDir) locked(create bool, fn func() error) error {
	for {
		if create {
			// It may be removed again before it is locked; a check that fails
			// for that reason is repeated.
			if err := d.make(); errors.Is(err, os.ErrNotExist) && parentExists(d.path) {
				continue
			} else if err != nil {
				return err
			}
		}
		dir, err := os.OpenFile(d.path, os.O_RDONLY|unix.O_DIRECTORY|unix.O_NOFOLLOW, 0)
		if create && errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return err
		}
		if err := flock(dir); err != nil {
			dir.Close()
			return fmt.Errorf("lock %s: %w", d.path, err)
		}
		if !sameFile(dir, d.path) { // removed meanwhile by the one who held the lock
			dir.Close()
			continue
		}
		err = fn()
		os.Remove(d.path) // fails unless it is empty
		return errors.Join(err, dir.Close())
	}
}

func parentExists(path string) bool {
	_, err := os.Stat(filepath.Dir(path))
	return err == nil
}

// flock waits for the exclusive lock on f, which ends when f is closed.
func flock(f *os.File) error {
	for {
		err := unix.Flock(int(f.Fd()), unix.LOCK_EX)
		if !errors.Is(err, unix.EINTR) {
			return err
		}
	}
}

// sameFile reports whether path leads to f.
func sameFile(f *os.File, path string) bool {
	held, err1 := f.Stat()
	there, err2 := os.Lstat(path)
	return err1 == nil && err2 == nil && os.SameFile(held, there)
}

// errTaken says that somebody listens on the socket.
var errTaken = errors.New("somebody listens on it")

// listen makes the socket at path, in place of one that a dead keeper left
// behind.
func (d stateDir) listen(path string) (l *net.UnixListener, err error) {
	err = d.locked(true, func() error {
		if !clearStale(path) {
			return errTaken
		}
		l, err = net.ListenUnix("unix", &net.UnixAddr{Name: path, Net: "unix"})
		if err == nil {
			l.SetUnlinkOnClose(false) // the keeper goes on listening
		}
		return err
	})
	return l, err
}

// removeStale removes the socket at path if nobody listens on it.
func (d stateDir) removeStale(path string) error {
	err := d.locked(false, func() error {
		clearStale(path)
		return nil
	})
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// clearStale removes the socket at path if nobody listens on it, and reports
// whether the path is free.
func clearStale(path string) bool {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	switch {
	case err == nil:
		c.Close()
		return false
	case errors.Is(err, unix.ECONNREFUSED):
		os.Remove(path)
	}
	return true
}

// closeSocket removes the path that l listens on and closes l, in this order:
// while l listens, nobody else makes a socket there, so the path is l's own.
func closeSocket(l net.Listener) error {
	path := l.Addr().String()
	err := stateDir{path: filepath.Dir(path)}.locked(false, func() error { return os.Remove(path) })
	if errors.Is(err, os.ErrNotExist) {
		err = nil // somebody has cleared up by hand
	}
	return errors.Join(err, l.Close())
}
