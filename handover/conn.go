package handover

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"syscall"
	"time"
)

// Bounds of one message.
const (
	maxMessage = 1 << 16 // bytes
	maxFiles   = 64
)

// Conn is one end of the pair.
type Conn struct{ unix *net.UnixConn }

// ErrGone says that the other end is closed. What it has said before can be received.
var ErrGone = errors.New("the other end is closed")

// newConn returns the end that f is, and closes f.
func newConn(f *os.File) (*Conn, error) {
	defer f.Close()
	c, err := net.FileConn(f)
	if err != nil {
		return nil, err
	}
	u, ok := c.(*net.UnixConn)
	if !ok || u.LocalAddr().Network() != "unixpacket" {
		return nil, errors.Join(fmt.Errorf("the file is a %s, want one of a pair of sockets", c.LocalAddr().Network()), c.Close())
	}
	return &Conn{u}, nil
}

// Close ends the pair here.
func (c *Conn) Close() error { return c.unix.Close() }

// Send sends a message, and duplicates of files with it.
func (c *Conn) Send(ctx context.Context, message any, files ...*os.File) error {
	b, err := json.Marshal(message)
	if err != nil {
		return err
	}
	if len(b) > maxMessage || len(files) > maxFiles {
		return fmt.Errorf("a message of %d bytes and %d files: at most %d and %d", len(b), len(files), maxMessage, maxFiles)
	}
	var rights []byte
	if len(files) > 0 {
		fds := make([]int, len(files))
		for i, f := range files {
			if fds[i], err = number(f); err != nil {
				return err
			}
		}
		rights = syscall.UnixRights(fds...)
	}
	defer c.until(ctx)()
	n, sent, err := c.unix.WriteMsgUnix(b, rights, nil)
	if errors.Is(err, syscall.EPIPE) || errors.Is(err, syscall.ECONNRESET) {
		return ErrGone
	}
	if err == nil && (n != len(b) || sent != len(rights)) {
		err = fmt.Errorf("%d of %d bytes were sent", n, len(b))
	}
	return because(ctx, err)
}

// number is a file's descriptor, which stays as it is: it is the caller's to keep the
// file open.
func number(f *os.File) (fd int, err error) {
	raw, err := f.SyscallConn()
	if err == nil {
		err = raw.Control(func(n uintptr) { fd = int(n) })
	}
	return fd, err
}

// Receive reads the next message into v, and the files that came with it. Its error is
// io.EOF when the other end is gone.
func (c *Conn) Receive(ctx context.Context, v any) ([]*os.File, error) {
	b := make([]byte, maxMessage)
	rights := make([]byte, syscall.CmsgSpace(4*maxFiles))
	defer c.until(ctx)()
	n, got, flags, _, err := c.unix.ReadMsgUnix(b, rights)
	if errors.Is(err, syscall.ECONNRESET) { // it has not read all; what it said last comes now
		n, got, flags, _, err = c.unix.ReadMsgUnix(b, rights)
	}
	if err != nil {
		return nil, because(ctx, err)
	}
	files, err := filesIn(rights[:got])
	if err == nil && flags&(syscall.MSG_TRUNC|syscall.MSG_CTRUNC) != 0 {
		err = errors.New("a message was cut short")
	}
	if err == nil {
		err = json.Unmarshal(b[:n], v)
	}
	if err != nil {
		for _, f := range files {
			f.Close()
		}
		return nil, fmt.Errorf("message: %w", err)
	}
	return files, nil
}

// filesIn returns the files that came with a message.
func filesIn(rights []byte) ([]*os.File, error) {
	if len(rights) == 0 {
		return nil, nil
	}
	all, err := syscall.ParseSocketControlMessage(rights)
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range all {
		fds, err := syscall.ParseUnixRights(&all[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			files = append(files, os.NewFile(uintptr(fd), "handed over"))
		}
	}
	return files, nil
}

// until has what blocks end with ctx, until release is called.
func (c *Conn) until(ctx context.Context) (release func()) {
	_ = c.unix.SetDeadline(time.Time{}) // closed: what follows says so
	ended := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		_ = c.unix.SetDeadline(time.Unix(1, 0))
		close(ended)
	})
	return func() {
		if !stop() {
			<-ended
		}
	}
}

// because says that a context's end was the reason.
func because(ctx context.Context, err error) error {
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}
