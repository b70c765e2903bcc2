package testbed

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// Keeper keeps a lab up and runs commands on its hosts for those who call.
type Keeper struct {
	lab    *Lab
	down   chan struct{} // gets a value when somebody asks to take the lab down
	closed chan struct{} // closed when the lab has been
	err    error         // of closing it; read after closed

	mu      sync.RWMutex // held for reading while the lab is used
	closing bool
}

// NewKeeper returns the keeper of a lab.
func NewKeeper(lab *Lab) *Keeper {
	return &Keeper{lab: lab, down: make(chan struct{}, 1), closed: make(chan struct{})}
}

// Run answers calls until ctx ends or a caller takes the lab down; then it
// closes the lab, removes the listener's socket and closes the listener. Those
// who ask to take the lab down meanwhile hear, too, when it is.
func (k *Keeper) Run(ctx context.Context, calls net.Listener) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	accepting := make(chan error, 1)
	wg.Go(func() {
		for {
			c, err := calls.Accept()
			if err != nil {
				accepting <- err
				return
			}
			wg.Go(func() {
				defer c.Close()
				k.serve(ctx, c.(*net.UnixConn))
			})
		}
	})
	var err error
	select {
	case <-ctx.Done():
	case <-k.down:
	case err = <-accepting:
		err = fmt.Errorf("taking calls: %w", err)
	}
	stop()
	k.mu.Lock()
	k.closing = true
	k.mu.Unlock()
	// The socket stays until nothing of the lab is left, so that nobody takes
	// the lab for down before.
	k.err = k.lab.Close()
	err = errors.Join(err, k.err, closeSocket(calls))
	close(k.closed)
	wg.Wait()
	return err
}

// use calls fn with the lab, unless that is going down.
func (k *Keeper) use(fn func(*Lab) error) error {
	k.mu.RLock()
	defer k.mu.RUnlock()
	if k.closing {
		return fmt.Errorf("lab %s is going down", k.lab.Topology.Name)
	}
	return fn(k.lab)
}

// serve answers one call.
func (k *Keeper) serve(ctx context.Context, c *net.UnixConn) {
	answer := json.NewEncoder(c)
	files, err := receiveFiles(c)
	defer closeAll(files)
	var r request
	calls := json.NewDecoder(c)
	if err == nil {
		err = calls.Decode(&r)
	}
	switch {
	case err != nil:
		answer.Encode(errorReply(fmt.Errorf("call not understood: %w", err)))
	case r.Exec != nil:
		e := execution{k, r.Exec, files, c, calls}
		code, err := e.run(ctx)
		if err != nil {
			answer.Encode(errorReply(err))
			return
		}
		answer.Encode(reply{Exit: &code})
	case r.Down:
		select {
		case k.down <- struct{}{}:
		default: // another caller has asked
		}
		<-k.closed
		answer.Encode(errorReply(k.err))
	default:
		var s *Status
		if err := k.use(func(l *Lab) error { s = l.status(); return nil }); err != nil {
			answer.Encode(errorReply(err))
			return
		}
		answer.Encode(reply{Status: s})
	}
}

// errorReply answers with an error, or with nothing to complain of.
func errorReply(err error) reply {
	if err == nil {
		return reply{}
	}
	return reply{Error: err.Error()}
}

func closeAll(files []*os.File) {
	for _, f := range files {
		f.Close()
	}
}

// execution is one command that a caller runs on a host.
type execution struct {
	keeper  *Keeper
	request *execRequest
	files   []*os.File // standard input, output, error
	conn    net.Conn
	signals *json.Decoder // on conn
}

// run runs the command and returns its exit code, as a shell counts: 128 plus
// the number when a signal ended it. When the caller hangs up first, so does
// the command's terminal.
func (e execution) run(ctx context.Context) (int, error) {
	var cmd *exec.Cmd
	if err := e.keeper.use(func(l *Lab) (err error) {
		if cmd, err = e.command(l); err != nil {
			return err
		}
		return l.Start(e.request.Host, cmd)
	}); err != nil {
		return 0, err
	}
	ended := make(chan struct{})
	var wg sync.WaitGroup
	wg.Go(func() {
		for {
			var s signalRequest
			if err := e.signals.Decode(&s); err != nil {
				hangUp(cmd, ended)
				return
			}
			signalGroup(cmd, syscall.Signal(s.Signal))
		}
	})
	wg.Go(func() {
		select {
		case <-ended:
		case <-ctx.Done():
			hangUp(cmd, ended)
		}
	})
	cmd.Wait() // its error is in ProcessState
	close(ended)
	e.conn.SetReadDeadline(time.Now()) // wakes the first goroutine
	wg.Wait()
	if ws := cmd.ProcessState.Sys().(syscall.WaitStatus); ws.Signaled() {
		return 128 + int(ws.Signal()), nil
	}
	return cmd.ProcessState.ExitCode(), nil
}

// command prepares the command in a process group of its own, so that a signal
// reaches what it started too.
func (e execution) command(l *Lab) (*exec.Cmd, error) {
	r := e.request
	if len(e.files) != maxFiles {
		return nil, fmt.Errorf("%d file descriptors came, want standard input, output and error", len(e.files))
	}
	if len(r.Args) == 0 {
		return nil, errors.New("the command is missing")
	}
	if _, err := l.machine(r.Host); err != nil {
		return nil, err
	}
	path := r.Args[0]
	if filepath.Base(path) != path {
		if !filepath.IsAbs(path) {
			path = filepath.Join(r.Dir, path)
		}
	} else if found, err := lookPath(path, r.Env, r.Dir); err != nil {
		return nil, err
	} else {
		path = found
	}
	return &exec.Cmd{Path: path, Args: r.Args, Env: r.Env, Dir: r.Dir,
		Stdin: e.files[0], Stdout: e.files[1], Stderr: e.files[2],
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true}}, nil
}

// lookPath finds a program as the caller's shell would: in the PATH of its
// environment, with dir as its working directory.
func lookPath(name string, env []string, dir string) (string, error) {
	var path string
	for _, v := range env {
		if value, ok := strings.CutPrefix(v, "PATH="); ok {
			path = value // the last one counts, as for a process
		}
	}
	for _, in := range filepath.SplitList(path) {
		if !filepath.IsAbs(in) {
			in = filepath.Join(dir, in)
		}
		file := filepath.Join(in, name)
		if st, err := os.Stat(file); err == nil && st.Mode().IsRegular() && unix.Access(file, unix.X_OK) == nil {
			return file, nil
		}
	}
	return "", &exec.Error{Name: name, Err: exec.ErrNotFound}
}

// hangUp does to a command what a closed terminal does, and more when that is
// not enough.
func hangUp(cmd *exec.Cmd, ended <-chan struct{}) {
	const grace = 5 * time.Second
	for _, s := range []syscall.Signal{syscall.SIGHUP, syscall.SIGKILL} {
		select {
		case <-ended:
			return
		default:
		}
		signalGroup(cmd, s)
		select {
		case <-ended:
			return
		case <-time.After(grace):
		}
	}
}

// signalGroup sends a signal to the command and what it started.
func signalGroup(cmd *exec.Cmd, s syscall.Signal) { syscall.Kill(-cmd.Process.Pid, s) }

// status tells how the lab stands.
func (l *Lab) status() *Status {
	s := &Status{Name: l.Topology.Name, Title: l.Topology.Title, Link: l.opts.Link}
	for i := range l.Topology.Hosts {
		h := &l.Topology.Hosts[i]
		hs := HostStatus{Name: h.Name, Role: h.Role}
		for _, n := range h.NICs {
			hs.Addresses = append(hs.Addresses, n.Segment+" "+n.Address.String())
		}
		for _, p := range l.procs {
			if p.Host != h.Name {
				continue
			}
			ps := ProcessStatus{Command: p.Args[0], Running: p.Running()}
			if p.Args[0] == "lab" {
				ps.Command = p.Args[1]
			}
			if !ps.Running {
				ps.Log = p.Log()
			}
			hs.Processes = append(hs.Processes, ps)
		}
		s.Hosts = append(s.Hosts, hs)
	}
	return s
}
