package control

import (
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
	"pktdirector/sched"
)

// Administrator is what ipvsadm commands ask of a director.
type Administrator interface {
	AddService(lvs.VirtualService) error
	EditService(lvs.VirtualService) error
	DeleteService(lvs.ServiceKey) error
	AddServer(lvs.ServiceKey, lvs.RealServer) error
	EditServer(lvs.ServiceKey, lvs.RealServer) error
	DeleteServer(lvs.ServiceKey, lvs.ServerKey) error
	Flush()
	ZeroCounters(lvs.ServiceKey) error
	SetTimeouts(tcp, tcpFin, udp time.Duration)
	Status() []lvs.ServiceStatus
}

// Commander carries out ipvsadm command lines on a director.
type Commander struct {
	Director    Administrator
	Connections func() []Connection // for -Lc

	changed [3]time.Duration // timeouts that --set changed
}

// Answer is what a command line led to.
type Answer struct {
	Code           int
	Stdout, Stderr string
}

// Do carries out one command line, given without the program's name. stdin is
// what -R reads.
func (c *Commander) Do(args []string, stdin string) Answer {
	var out, complaints strings.Builder
	err := c.do(args, stdin, &out, &complaints)
	a := Answer{Stdout: out.String(), Stderr: complaints.String()}
	if err == nil {
		return a
	}
	a.Code = 255
	a.Stderr += err.Error() + "\n"
	if refusal := (*CommandError)(nil); errors.As(err, &refusal) {
		a.Code = refusal.Code
	}
	return a
}

func (c *Commander) do(args []string, stdin string, out, complaints io.Writer) error {
	cmd, err := ParseCommand(args)
	if err != nil {
		return err
	}
	key := cmd.Service.ServiceKey
	switch cmd.Op {
	case 'A', 'E':
		return c.service(&cmd)
	case 'D':
		return inWords(c.Director.DeleteService(key), false)
	case 'a', 'e':
		return c.server(&cmd)
	case 'd':
		return inWords(c.Director.DeleteServer(key, cmd.Server.ServerKey), true)
	case 'C':
		c.Director.Flush()
	case 's':
		for i, d := range cmd.Set {
			if d != 0 {
				c.changed[i] = d
			}
		}
		c.Director.SetTimeouts(cmd.Set[0], cmd.Set[1], cmd.Set[2])
	case 'S':
		return WriteSave(out, c.status())
	case 'R':
		return c.restore(stdin, out, complaints)
	case 'L':
		return c.list(&cmd, out)
	case 'Z':
		if cmd.Named {
			return inWords(c.Director.ZeroCounters(key), false)
		}
		for _, s := range c.Director.Status() {
			if err := c.Director.ZeroCounters(s.Service); err != nil {
				return inWords(err, false)
			}
		}
	}
	return nil
}

func (c *Commander) service(cmd *Command) error {
	s := cmd.Service
	there := c.find(s.ServiceKey) != nil
	switch {
	case cmd.Op == 'A' && there:
		return inWords(lvs.ErrServiceExists, false)
	case cmd.Op == 'E' && !there:
		return inWords(lvs.ErrNoService, false)
	case !sched.Known(s.Scheduler):
		return refused(255, "Scheduler or persistence engine not found")
	case cmd.Op == 'A':
		return inWords(c.Director.AddService(s), false)
	}
	return inWords(c.Director.EditService(s), false)
}

func (c *Commander) server(cmd *Command) error {
	key, rs := cmd.Service.ServiceKey, cmd.Server
	switch ip := rs.RIP.Netip(); {
	case c.find(key) == nil:
		return inWords(lvs.ErrNoService, true)
	case ip.IsUnspecified() || ip.IsMulticast() || ip.Is4() && rs.RIP.V4() == 1<<32-1:
		return refused(255, "Invalid operation.  Possibly wrong module version, address not unicast, ...")
	case rs.Lower > rs.Upper:
		return refused(255, "Numerical result out of range")
	case cmd.Op == 'a':
		return inWords(c.Director.AddServer(key, rs), true)
	}
	return inWords(c.Director.EditServer(key, rs), true)
}

// inWords says an engine's refusal in ipvsadm's words. A missing service has
// others for the commands on servers.
func inWords(err error, onServer bool) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, lvs.ErrServiceExists):
		return refused(255, "Service already exists")
	case errors.Is(err, lvs.ErrNoService) && onServer:
		return refused(255, "Service not defined")
	case errors.Is(err, lvs.ErrNoService):
		return refused(255, "No such service")
	case errors.Is(err, lvs.ErrServerExists):
		return refused(255, "Destination already exists")
	case errors.Is(err, lvs.ErrNoServer):
		return refused(255, "No such destination")
	}
	return refused(255, "%v", err)
}

// restore runs the lines that -S wrote. A line that the director refuses is
// passed over; one that cannot be read ends it.
func (c *Commander) restore(lines string, out, complaints io.Writer) error {
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if _, err := ParseCommand(words); err != nil {
			return err
		}
		if refusal := c.do(words, "", out, complaints); refusal != nil {
			if _, err := fmt.Fprintln(complaints, refusal); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Commander) status() *Status {
	return &Status{Version: APIVersion, TableSize: DefaultTableSize, Services: ServicesOf(c.Director.Status())}
}

func (c *Commander) find(key lvs.ServiceKey) *lvs.ServiceStatus {
	all := c.Director.Status()
	i := slices.IndexFunc(all, func(s lvs.ServiceStatus) bool { return s.Service == key })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func (c *Commander) list(cmd *Command, out io.Writer) error {
	l := cmd.List
	switch {
	case l.Timeout:
		t := c.changed
		for i, d := range []time.Duration{900 * time.Second, 120 * time.Second, 300 * time.Second} {
			if t[i] == 0 {
				t[i] = d
			}
		}
		_, err := fmt.Fprintf(out, "Timeout (tcp tcpfin udp): %d %d %d\n", t[0]/time.Second, t[1]/time.Second, t[2]/time.Second)
		return err
	case l.Connections:
		return WriteConnections(out, c.Connections())
	}
	kind := plainList()
	switch {
	case l.Stats:
		kind = statsList(l.Exact)
	case l.Rate:
		kind = rateList(l.Exact)
	case l.Thresholds:
		kind = thresholdList()
	case l.Persistent:
		kind = persistentList()
	}
	kind.unsorted = l.NoSort
	if !cmd.Named {
		return writeServices(out, c.status(), kind)
	}
	found := c.find(cmd.Service.ServiceKey)
	if found == nil {
		return inWords(lvs.ErrNoService, false)
	}
	return kind.write(out, ServicesOf([]lvs.ServiceStatus{*found}))
}

// ProtocolName is a connection's protocol in listings: a firewall mark's
// template has none of its own.
func ProtocolName(p packet.Proto) string {
	if p == 0 {
		return "IP"
	}
	return p.String()
}
