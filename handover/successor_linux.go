package handover

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"
)

// variable of the environment tells a successor which file its end of the pair is.
const variable = "PKTDIRECTOR_PREDECESSOR"

// Successor is a process that is to take over.
type Successor struct {
	*Conn
	process *exec.Cmd
	ended   chan struct{}
	how     error // once ended is closed
}

// Start starts a successor: the program at path with args, of which the first is its
// name, and the environment env. What it prints goes where this process prints.
func Start(path string, args, env []string) (*Successor, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, fmt.Errorf("socketpair: %w", err)
	}
	ours, theirs := os.NewFile(uintptr(pair[0]), "successor"), os.NewFile(uintptr(pair[1]), "predecessor")
	defer theirs.Close()
	conn, err := newConn(ours)
	if err != nil {
		return nil, err
	}
	const firstExtra = 3
	cmd := exec.Command(path)
	cmd.Args = args
	cmd.Env = append(slices.DeleteFunc(slices.Clone(env), isVariable), variable+"="+strconv.Itoa(firstExtra))
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.ExtraFiles = []*os.File{theirs}
	if err := cmd.Start(); err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	s := &Successor{Conn: conn, process: cmd, ended: make(chan struct{})}
	go func() { // ends with the process, or with this one
		s.how = cmd.Wait()
		close(s.ended)
	}()
	return s, nil
}

func isVariable(v string) bool { return strings.HasPrefix(v, variable+"=") }

// PID is the successor's process id.
func (s *Successor) PID() int { return s.process.Process.Pid }

// Kill ends the successor and returns when it is gone, with how it ended: nil for an
// exit code of 0.
func (s *Successor) Kill() error {
	_ = s.process.Process.Kill() // it has ended already: so much the better
	<-s.ended
	return errors.Join(s.Close(), s.how)
}

// Ended is closed when the successor has ended.
func (s *Successor) Ended() <-chan struct{} { return s.ended }

// How tells how the successor ended, in words: once Ended is closed.
func (s *Successor) How() string {
	<-s.ended
	return s.process.ProcessState.String()
}

// Inherited returns the end of the pair that this process was started with; nil where
// it is nobody's successor. Processes that this one starts know nothing of it.
func Inherited() (*Conn, error) {
	text := os.Getenv(variable)
	if text == "" {
		return nil, nil
	}
	os.Unsetenv(variable)
	fd, err := strconv.ParseUint(text, 10, 16)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: want the number of a file descriptor", variable, text)
	}
	unix.CloseOnExec(int(fd))
	f := os.NewFile(uintptr(fd), "predecessor")
	c, err := newConn(f)
	if err != nil {
		return nil, fmt.Errorf("%s=%s: %w", variable, text, err)
	}
	return c, nil
}
