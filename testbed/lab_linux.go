package testbed

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"

	"pktdirector/lvs"
)

// switchName is the machine whose bridges are the segments.
const switchName = "switch"

// DirectorConfig is where a lab's director finds its configuration, in its own
// /run.
const DirectorConfig = "/run/pktdirector/director.yaml"

// Options say how a lab is built.
type Options struct {
	Program string     // the pktdirector program; empty: the running one
	Link    LinkKind   // what the director forwards on
	Step    func(Step) // told of each step before it is taken; may be nil
	Log     *slog.Logger
}

// Step is one step of building a lab: what a person would type, and where.
type Step struct {
	Host    string `json:"host"`
	Command string `json:"command"`
}

// String formats s like a line in a terminal.
func (s Step) String() string { return s.Host + "# " + s.Command }

// Lab is a topology that stands: its machines, and the processes on them. Its
// methods may be called from any goroutine, but not during Build or Close.
type Lab struct {
	Topology *Topology
	opts     Options
	decap    Decap
	machines map[string]*machine
	procs    []*Process
}

// Build makes the topology's hosts and configures them, without starting
// anything on them. The caller needs the right to make namespaces: root, or a
// process in a Sandbox.
func Build(t *Topology, o Options) (*Lab, error) {
	if o.Program == "" {
		o.Program = Self
	}
	if err := o.Link.Check(t); err != nil {
		return nil, err
	}
	l := &Lab{Topology: t, opts: o, machines: map[string]*machine{}}
	if err := l.build(); err != nil {
		l.Close()
		return nil, fmt.Errorf("lab %s: %w", t.Name, err)
	}
	return l, nil
}

func (l *Lab) build() error {
	if err := l.wire(); err != nil {
		return err
	}
	for i := range l.Topology.Hosts {
		if err := l.configure(&l.Topology.Hosts[i]); err != nil {
			return err
		}
	}
	return nil
}

// wire makes machines, segments and the cables between them.
func (l *Lab) wire() error {
	if err := l.addMachine(switchName); err != nil {
		return err
	}
	for _, s := range l.Topology.Segments {
		if err := l.apply(switchName, AddBridge{s.Name}); err != nil {
			return err
		}
	}
	for _, h := range l.Topology.Hosts {
		if err := l.addMachine(h.Name); err != nil {
			return err
		}
		for i, n := range h.NICs {
			plug := PlugIn{Bridge: n.Segment, Port: fmt.Sprintf("%s-%d", h.Name, i),
				Host: h.Name, NIC: n.Segment, MAC: n.MAC, Into: l.machines[h.Name].netFD()}
			if err := l.apply(switchName, plug); err != nil {
				return err
			}
		}
	}
	return nil
}

func (l *Lab) addMachine(name string) error {
	l.step(name, "ip netns add "+name)
	m, err := newMachine(name)
	if err != nil {
		return err
	}
	l.machines[name] = m
	return nil
}

// configure gives a host its role.
func (l *Lab) configure(h *Host) error {
	c := l.Config(h)
	var ops []Op
	err := l.Do(h.Name, func() error {
		f, err := ReadFacts(c)
		if err != nil {
			return err
		}
		if f.Decap != "" {
			l.decap = f.Decap
		}
		ops, err = c.Plan(f)
		return err
	})
	if err != nil {
		return fmt.Errorf("host %s: %w", h.Name, err)
	}
	return l.apply(h.Name, ops...)
}

// Config returns the configuration of a host, as this lab gives it its role.
func (l *Lab) Config(h *Host) HostConfig {
	c := l.Topology.Config(h)
	c.Tundev = h.Role == Director && l.opts.Link == Tundev
	return c
}

// apply takes steps on a host.
func (l *Lab) apply(host string, ops ...Op) error {
	return l.Do(host, func() error {
		for _, op := range ops {
			l.step(host, op.String())
			if err := op.Apply(); err != nil {
				return fmt.Errorf("host %s: %w", host, err)
			}
		}
		return nil
	})
}

// step tells of a step that is to be taken.
func (l *Lab) step(host, command string) {
	if l.opts.Step != nil {
		l.opts.Step(Step{host, command})
	}
}

// StartServers starts what runs on the real servers, and waits until it serves.
func (l *Lab) StartServers(ctx context.Context) error {
	var started []*Process
	for _, h := range l.Topology.With(RealServer) {
		for _, args := range [][]string{l.Topology.EndpointArgs(h, l.decap), l.Topology.ServeArgs(h)} {
			if args == nil {
				continue
			}
			p, err := l.start(h.Name, args)
			if err != nil {
				return err
			}
			started = append(started, p)
		}
	}
	for _, p := range started {
		if err := p.waitReady(ctx); err != nil {
			return err
		}
	}
	return nil
}

// StartDirector writes the director's configuration, starts it, and waits
// until it forwards.
func (l *Lab) StartDirector(ctx context.Context) (*Process, error) {
	h := l.Topology.With(Director)[0]
	err := l.Do(h.Name, func() error {
		if err := os.MkdirAll(filepath.Dir(DirectorConfig), 0o755); err != nil {
			return err
		}
		return os.WriteFile(DirectorConfig, []byte(l.Topology.DirectorYAML(l.opts.Link)), 0o644)
	})
	if err != nil {
		return nil, fmt.Errorf("host %s: writing the director's configuration: %w", h.Name, err)
	}
	p, err := l.start(h.Name, []string{"run", "-c", DirectorConfig})
	if err != nil {
		return nil, err
	}
	return p, p.waitReady(ctx)
}

// start starts the program with args on a host.
func (l *Lab) start(host string, args []string) (*Process, error) {
	l.step(host, "pktdirector "+strings.Join(args, " "))
	p := &Process{Host: host, Args: args, done: make(chan struct{}),
		cmd: exec.Command(l.opts.Program, args...), log: &logBuffer{ready: make(chan struct{})}}
	p.cmd.Stdout, p.cmd.Stderr, p.cmd.WaitDelay = p.log, p.log, outputTimeout
	if err := l.Start(host, p.cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", p, err)
	}
	go func() { // ends with the process, which Close ends
		if p.err = p.cmd.Wait(); errors.Is(p.err, exec.ErrWaitDelay) {
			p.err = nil // it ended well, and another has its output
		}
		close(p.done)
	}()
	l.procs = append(l.procs, p)
	return p, nil
}

// Start starts a command on a host. The caller waits for it.
func (l *Lab) Start(host string, cmd *exec.Cmd) error {
	m, err := l.machine(host)
	if err != nil {
		return err
	}
	return m.start(cmd)
}

// Output runs the program with args on a host and returns what it wrote to its
// standard output; the error has what it wrote to the other.
func (l *Lab) Output(ctx context.Context, host string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, l.opts.Program, args...)
	var out, complaint strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &complaint
	err := l.Start(host, cmd)
	if err == nil {
		err = cmd.Wait()
	}
	if err != nil {
		return out.String(), fmt.Errorf("%s# pktdirector %s: %w: %s", host, strings.Join(args, " "), err, strings.TrimSpace(complaint.String()))
	}
	return out.String(), nil
}

// Do calls fn on a thread that is inside the host; goroutines that fn starts
// are not.
func (l *Lab) Do(host string, fn func() error) error {
	m, err := l.machine(host)
	if err != nil {
		return err
	}
	return m.do(fn)
}

func (l *Lab) machine(host string) (*machine, error) {
	if m, ok := l.machines[host]; ok {
		return m, nil
	}
	_, err := l.Topology.Host(host)
	return nil, err
}

// Processes returns what the lab started on its hosts.
func (l *Lab) Processes() []*Process { return slices.Clone(l.procs) }

// director returns the director's process that was started last.
func (l *Lab) director() *Process {
	for _, p := range slices.Backward(l.procs) {
		if p.Args[0] == "run" {
			return p
		}
	}
	return nil
}

// Close ends the processes, those started last first, and takes the machines
// down. The error tells which processes did not end well.
func (l *Lab) Close() error {
	var errs []error
	for _, p := range slices.Backward(l.procs) {
		if p.Running() {
			errs = append(errs, p.Stop())
		}
	}
	for _, m := range l.machines {
		m.close()
	}
	l.procs, l.machines = nil, nil
	return errors.Join(errs...)
}

// Check reports whether a director can work in t on such a link here.
func (k LinkKind) Check(t *Topology) error {
	if k != Tundev {
		return nil
	}
	if t.Mode.Method == lvs.Route {
		return fmt.Errorf("lab %s: direct routing rewrites Ethernet addresses, and a TUN device has none: use --link %s", t.Name, AFPacket)
	}
	return TundevUsable()
}
