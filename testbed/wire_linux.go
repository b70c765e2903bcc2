package testbed

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"

	"golang.org/x/sys/unix"
)

// A keeper and those who call it speak JSON over a stream socket. A call
// begins with one byte that carries file descriptors, none or three, and goes
// on with a request. While a command runs, the caller may send signals.

// request is what a caller wants of a keeper.
type request struct {
	Exec   *execRequest `json:"exec,omitempty"`
	Status bool         `json:"status,omitempty"`
	Down   bool         `json:"down,omitempty"`
}

// execRequest asks to run a command on a host; its standard streams come as
// file descriptors.
type execRequest struct {
	Host string   `json:"host"`
	Args []string `json:"args"`
	Env  []string `json:"env"`
	Dir  string   `json:"dir"`
}

// signalRequest sends a signal to the command that runs.
type signalRequest struct {
	Signal int `json:"signal"`
}

// reply is a keeper's answer.
type reply struct {
	Error  string  `json:"error,omitempty"`
	Exit   *int    `json:"exit,omitempty"` // of the command
	Status *Status `json:"status,omitempty"`
}

// Status is a lab that is up.
type Status struct {
	Name  string       `json:"name"`
	Title string       `json:"title"`
	Link  LinkKind     `json:"link"`
	PID   int          `json:"pid"` // of its keeper, as the caller sees it
	Hosts []HostStatus `json:"hosts"`
}

// HostStatus is a host of a lab that is up.
type HostStatus struct {
	Name      string          `json:"name"`
	Role      Role            `json:"role"`
	Addresses []string        `json:"addresses"`
	Processes []ProcessStatus `json:"processes"`
}

// ProcessStatus is a process that the lab started on a host.
type ProcessStatus struct {
	Command string `json:"command"`
	Running bool   `json:"running"`
	// Log is the end of what a process that ended has written.
	Log string `json:"log,omitempty"`
}

// sendFiles begins a call.
func sendFiles(c *net.UnixConn, files ...*os.File) error {
	var fds []int
	for _, f := range files {
		fds = append(fds, int(f.Fd()))
	}
	_, _, err := c.WriteMsgUnix([]byte{0}, unix.UnixRights(fds...), nil)
	return err
}

// maxFiles is how many file descriptors a call carries at most.
const maxFiles = 3

// receiveFiles reads the beginning of a call.
func receiveFiles(c *net.UnixConn) ([]*os.File, error) {
	oob := make([]byte, unix.CmsgSpace(maxFiles*4))
	var one [1]byte
	n, oobn, _, _, err := c.ReadMsgUnix(one[:], oob)
	if err != nil {
		return nil, err
	}
	if n == 0 {
		return nil, io.EOF
	}
	msgs, err := unix.ParseSocketControlMessage(oob[:oobn])
	if err != nil {
		return nil, err
	}
	var files []*os.File
	for i := range msgs {
		fds, err := unix.ParseUnixRights(&msgs[i])
		if err != nil {
			return files, err
		}
		for _, fd := range fds {
			unix.CloseOnExec(fd)
			files = append(files, os.NewFile(uintptr(fd), fmt.Sprintf("descriptor %d of the caller", len(files))))
		}
	}
	return files, nil
}

// peer returns the process and user at the other end.
func peer(c *net.UnixConn) (*unix.Ucred, error) {
	raw, err := c.SyscallConn()
	if err != nil {
		return nil, err
	}
	var cred *unix.Ucred
	var credErr error
	if err := raw.Control(func(fd uintptr) {
		cred, credErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return nil, err
	}
	return cred, credErr
}

// receive reads one reply and turns an error in it into an error.
func receive(d *json.Decoder) (reply, error) {
	var r reply
	if err := d.Decode(&r); err != nil {
		if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) {
			err = fmt.Errorf("%w any more", ErrNotUp)
		}
		return r, err
	}
	if r.Error != "" {
		return r, errors.New(r.Error)
	}
	return r, nil
}
