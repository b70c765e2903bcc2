package testbed

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"
)

// Standing is a lab that a keeper keeps up, seen from outside: a name and the
// socket where its keeper takes calls.
type Standing struct {
	Name string
	dir  stateDir
}

// ErrNotUp says that no keeper keeps the lab up.
var ErrNotUp = errors.New("is not up")

// Find returns the lab of that name, whether it is up or not.
func Find(name string) (*Standing, error) {
	if _, err := Load(name); err != nil {
		return nil, err
	}
	dir, err := findStateDir()
	if err != nil {
		return nil, err
	}
	return &Standing{Name: name, dir: dir}, nil
}

// Up returns the labs that are up.
func Up() ([]*Standing, error) {
	var up []*Standing
	for _, name := range Names() {
		s, err := Find(name)
		if err != nil {
			return nil, err
		}
		if _, err := s.Status(); err == nil {
			up = append(up, s)
		}
	}
	return up, nil
}

// Start starts a keeper for the lab. args make this program run it: with the
// listening socket as file descriptor 3 and, as 4, a pipe to which it
// writes one Progress after another. tell is called with each step.
func (s *Standing) Start(ctx context.Context, args []string, tell func(Step)) error {
	l, err := s.listen()
	if err != nil {
		return err
	}
	defer l.Close()
	socket, err := l.File()
	if err != nil {
		return errors.Join(err, closeSocket(l))
	}
	defer socket.Close()
	progress, pipe, err := os.Pipe()
	if err != nil {
		return errors.Join(err, closeSocket(l))
	}
	defer progress.Close()
	cmd := Sandbox(append([]string{"lab", "init", "--"}, args...)...)
	cmd.ExtraFiles = []*os.File{socket, pipe}
	cmd.SysProcAttr.Setsid = true // what ends the caller's terminal leaves the keeper alone
	err = cmd.Start()
	pipe.Close()
	if err != nil {
		return errors.Join(SandboxError(err), closeSocket(l))
	}
	if err := s.follow(ctx, progress, tell); err != nil {
		cmd.Process.Kill()
		cmd.Wait()
		return errors.Join(err, closeSocket(l))
	}
	return cmd.Process.Release()
}

// Progress is what a keeper tells while it builds its lab: steps, and in the
// end that it is ready or why it is not.
type Progress struct {
	Step  *Step  `json:"step,omitempty"`
	Ready bool   `json:"ready,omitempty"`
	Error string `json:"error,omitempty"`
}

func (s *Standing) follow(ctx context.Context, from *os.File, tell func(Step)) error {
	stop := context.AfterFunc(ctx, func() { from.Close() })
	defer stop()
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var p Progress
		if err := json.Unmarshal(lines.Bytes(), &p); err != nil {
			return fmt.Errorf("lab %s: its keeper said %q: %w", s.Name, lines.Text(), err)
		}
		switch {
		case p.Error != "":
			return errors.New(p.Error)
		case p.Ready:
			return nil
		case p.Step != nil:
			tell(*p.Step)
		}
	}
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("lab %s: its keeper ended before the lab stood", s.Name)
}

// listen makes the socket, in place of one that a dead keeper left behind.
func (s *Standing) listen() (*net.UnixListener, error) {
	path, err := s.dir.socket(s.Name)
	if err != nil {
		return nil, err
	}
	l, err := s.dir.listen(path)
	if errors.Is(err, errTaken) {
		return nil, fmt.Errorf("lab %s is up already: take it down first (pktdirector lab down %[1]s)", s.Name)
	}
	return l, err
}

// Status asks the keeper how the lab stands.
func (s *Standing) Status() (*Status, error) {
	c, err := s.call(request{Status: true})
	if err != nil {
		return nil, err
	}
	defer c.close()
	r, err := receive(c.replies)
	if err != nil {
		return nil, fmt.Errorf("lab %s %w", s.Name, err)
	}
	r.Status.PID = c.keeper
	return r.Status, nil
}

// Down takes the lab down and returns when nothing of it is left.
func (s *Standing) Down() error {
	c, err := s.call(request{Down: true})
	if err != nil {
		return err
	}
	defer c.close()
	if _, err := receive(c.replies); err != nil && !errors.Is(err, ErrNotUp) {
		return fmt.Errorf("lab %s: %w", s.Name, err)
	}
	return nil
}

// Exec runs a command on a host with this process's standard streams,
// environment and working directory, and returns its exit code. Signals that
// come in are passed on.
func (s *Standing) Exec(host string, args []string, signals <-chan os.Signal) (int, error) {
	dir, err := os.Getwd()
	if err != nil {
		return 0, err
	}
	c, err := s.call(request{Exec: &execRequest{Host: host, Args: args, Env: os.Environ(), Dir: dir}},
		os.Stdin, os.Stdout, os.Stderr)
	if err != nil {
		return 0, err
	}
	defer c.close()
	done := make(chan struct{})
	passed := make(chan struct{})
	go func() {
		defer close(passed)
		for {
			select {
			case sig := <-signals:
				c.send(signalRequest{Signal: int(sig.(syscall.Signal))})
			case <-done:
				return
			}
		}
	}()
	r, err := receive(c.replies)
	close(done)
	<-passed
	if errors.Is(err, ErrNotUp) {
		return 0, fmt.Errorf("lab %s %w", s.Name, err)
	}
	if err != nil {
		return 0, err
	}
	if r.Exit == nil {
		return 0, errors.New("the keeper gave no exit code")
	}
	return *r.Exit, nil
}

// call is a conversation with a keeper.
type call struct {
	conn    *net.UnixConn
	replies *json.Decoder
	keeper  int // its process id
}

// call begins a conversation. A socket that nobody listens on any more is
// removed.
func (s *Standing) call(r request, files ...*os.File) (*call, error) {
	path, err := s.dir.socket(s.Name)
	if err != nil {
		return nil, err
	}
	var conn *net.UnixConn
	if err = s.dir.check(); err == nil {
		conn, err = net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	}
	if errors.Is(err, unix.ECONNREFUSED) {
		if err := s.dir.removeStale(path); err != nil {
			return nil, err
		}
		err = os.ErrNotExist
	}
	if errors.Is(err, os.ErrNotExist) {
		return nil, fmt.Errorf("lab %s %w: start it first (pktdirector lab up %[1]s)", s.Name, ErrNotUp)
	}
	if err != nil {
		return nil, err
	}
	c := &call{conn: conn, replies: json.NewDecoder(conn)}
	if cred, err := peer(conn); err == nil {
		c.keeper = int(cred.Pid)
	}
	if err := sendFiles(conn, files...); err != nil {
		c.close()
		return nil, fmt.Errorf("lab %s: calling its keeper: %w", s.Name, err)
	}
	if err := c.send(r); err != nil {
		c.close()
		return nil, fmt.Errorf("lab %s: calling its keeper: %w", s.Name, err)
	}
	return c, nil
}

func (c *call) send(v any) error { return json.NewEncoder(c.conn).Encode(v) }

func (c *call) close() { c.conn.Close() }

// Write formats a status as a table.
func (s *Status) Write(w io.Writer) error {
	var b strings.Builder
	fmt.Fprintf(&b, "%s: %s, link %s, keeper %d\n", s.Name, s.Title, s.Link, s.PID)
	fmt.Fprintf(&b, "  %-10s %-11s %-38s %s\n", "HOST", "ROLE", "ADDRESSES", "PROCESSES")
	for _, h := range s.Hosts {
		var procs []string
		for _, p := range h.Processes {
			state := "running"
			if !p.Running {
				state = "ENDED"
			}
			procs = append(procs, p.Command+" "+state)
		}
		line := fmt.Sprintf("  %-10s %-11s %-38s %s", h.Name, h.Role, strings.Join(h.Addresses, ", "), strings.Join(procs, ", "))
		b.WriteString(strings.TrimRight(line, " ") + "\n")
	}
	_, err := io.WriteString(w, b.String())
	return err
}
