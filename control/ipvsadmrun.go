package control

import (
	"errors"
	"fmt"
	"io"
	"iter"
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
	ZeroAll()
	Totals() (counted, rates lvs.Stats)
	SetTimeouts(tcp, tcpFin, udp time.Duration)
	Status() []lvs.ServiceStatus
}

// Commander carries out ipvsadm command lines on a director.
type Commander struct {
	Director    Administrator
	Connections iter.Seq[Connection] // for -Lc
	// Names are the hosts' and ports' names; nil: commands have addresses, and
	// listings numbers.
	Names *Names
	// Interfaces lists the director's network interfaces.
	Interfaces func() []string

	// Timeouts (tcp, tcpfin, udp) that are not the defaults; --set changes them.
	Timeouts [3]time.Duration
}

// Answer is what a command line led to.
type Answer struct {
	Code   int    `json:"code"` // exit code
	Stdout string `json:"stdout,omitempty"`
	Stderr string `json:"stderr,omitempty"`
	// Warnings are what ipvsadm has no words for: what an edit lost that the command
	// line did not name.
	Warnings []string `json:"warnings,omitempty"`
	// Refused: the command line was not looked at.
	Refused error `json:"-"`
}

// maxAnswer is how many bytes of output an Answer has: connections are listed one by
// one elsewhere.
const maxAnswer = 16 << 20

// boundedText takes so much text and no more.
type boundedText struct {
	strings.Builder
	full bool
}

// Write implements io.Writer.
func (b *boundedText) Write(p []byte) (int, error) {
	if b.full = b.Len()+len(p) > maxAnswer; b.full {
		return 0, refused(1, "more than %d bytes are to be listed: ask for the connections by GET /v1/connections, which gives them one a line, or those you mean", maxAnswer)
	}
	return b.Builder.Write(p)
}

// Do carries out one command line, given without the program's name. stdin is
// what -R reads.
func (c *Commander) Do(args []string, stdin string) Answer {
	var out boundedText
	var complaints strings.Builder
	var warnings []string
	err := c.do(args, stdin, &out, &complaints, &warnings)
	a := Answer{Stdout: out.String(), Stderr: complaints.String(), Warnings: warnings}
	if err == nil {
		return a
	}
	a.Code = 255
	a.Stderr += err.Error() + "\n"
	if refusal := (*CommandError)(nil); errors.As(err, &refusal) {
		a.Code = refusal.Code
	}
	if out.full {
		a.Stdout = "" // a part of a list looks like all of it
	}
	return a
}

func (c *Commander) do(args []string, stdin string, out, complaints io.Writer, warnings *[]string) error {
	cmd, err := ParseCommand(args, c.Names)
	if err != nil {
		return err
	}
	names := c.Names
	if cmd.Numeric {
		names = nil
	}
	key := cmd.Service.ServiceKey
	switch cmd.Op {
	case 'A', 'E':
		return c.service(&cmd, warnings)
	case 'D':
		return inWords(c.Director.DeleteService(key), false)
	case 'a', 'e':
		return c.server(&cmd, warnings)
	case 'd':
		return inWords(c.Director.DeleteServer(key, cmd.Server.ServerKey), true)
	case 'C':
		c.Director.Flush()
	case 's':
		for i, d := range cmd.Set {
			if d != 0 {
				c.Timeouts[i] = d
			}
		}
		c.Director.SetTimeouts(cmd.Set[0], cmd.Set[1], cmd.Set[2])
	case 'S':
		return writeSave(out, c.status(), names)
	case 'R':
		return c.restore(stdin, out, complaints, warnings)
	case 'L':
		return c.list(&cmd, out, names)
	case 'h', 'v':
		text := ipvsadmRelease
		if cmd.Op == 'h' {
			text += ipvsadmHelp
		}
		_, err := io.WriteString(out, text)
		return err
	case '+', '-':
		return c.daemon(&cmd)
	case 'Z':
		if cmd.Named {
			return inWords(c.Director.ZeroCounters(key), false)
		}
		c.Director.ZeroAll()
	}
	return nil
}

func (c *Commander) service(cmd *Command, warnings *[]string) error {
	s := cmd.Service
	was := c.find(s.ServiceKey)
	there := was != nil
	switch {
	case cmd.Op == 'A' && there:
		return inWords(lvs.ErrServiceExists, false)
	case cmd.Op == 'E' && !there:
		return inWords(lvs.ErrNoService, false)
	case !sched.Known(s.Scheduler) || !knownEngine(&s):
		return refused(255, "Scheduler or persistence engine not found")
	case cmd.Op == 'A':
		return inWords(c.Director.AddService(s), false)
	}
	err := c.Director.EditService(s)
	if err == nil {
		*warnings = append(*warnings, editedService(cmd, was)...)
	}
	return inWords(err, false)
}

func (c *Commander) server(cmd *Command, warnings *[]string) error {
	key, rs := cmd.Service.ServiceKey, cmd.Server
	service := c.find(key)
	switch ip := rs.RIP.Netip(); {
	case service == nil:
		return inWords(lvs.ErrNoService, true)
	case ip.IsUnspecified() || ip.IsMulticast() || ip.Is4() && rs.RIP.V4() == 1<<32-1:
		return refused(255, "Invalid operation.  Possibly wrong module version, address not unicast, ...")
	case rs.Lower > rs.Upper:
		return refused(255, "Numerical result out of range")
	case cmd.Op == 'a':
		return inWords(c.Director.AddServer(key, rs), true)
	}
	err := c.Director.EditServer(key, rs)
	if i := slices.IndexFunc(service.Destinations, func(d lvs.DestinationStatus) bool { return d.Server == rs.ServerKey }); err == nil && i >= 0 {
		*warnings = append(*warnings, editedServer(cmd, &service.Destinations[i])...)
	}
	return inWords(err, true)
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
func (c *Commander) restore(lines string, out, complaints io.Writer, warnings *[]string) error {
	for line := range strings.Lines(lines) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if _, err := ParseCommand(words, c.Names); err != nil {
			return err
		}
		if refusal := c.do(words, "", out, complaints, warnings); refusal != nil {
			if _, err := fmt.Fprintln(complaints, refusal); err != nil {
				return err
			}
		}
	}
	return nil
}

func (c *Commander) status() *Status {
	s := &Status{Version: APIVersion, TableSize: DefaultTableSize, Services: ServicesOf(c.Director.Status())}
	s.Stats, s.Rates = c.Director.Totals()
	return s
}

// Proc returns what one of the kernel's files (ProcFiles) would say.
func (c *Commander) Proc(file string) (string, error) {
	var b strings.Builder
	err := WriteProc(&b, file, c.status(), c.Connections)
	return b.String(), err
}

// withoutError is a sequence in which no error comes.
func withoutError(conns iter.Seq[Connection]) iter.Seq2[Connection, error] {
	return func(yield func(Connection, error) bool) {
		conns(func(c Connection) bool { return yield(c, nil) })
	}
}

func (c *Commander) find(key lvs.ServiceKey) *lvs.ServiceStatus {
	all := c.Director.Status()
	i := slices.IndexFunc(all, func(s lvs.ServiceStatus) bool { return s.Service == key })
	if i < 0 {
		return nil
	}
	return &all[i]
}

func (c *Commander) list(cmd *Command, out io.Writer, names *Names) error {
	l := cmd.List
	switch {
	case l.Timeout:
		t := c.Timeouts
		for i, d := range []time.Duration{DefaultTCP, DefaultTCPFin, DefaultUDP} {
			if t[i] == 0 {
				t[i] = d
			}
		}
		_, err := fmt.Fprintf(out, "Timeout (tcp tcpfin udp): %d %d %d\n", t[0]/time.Second, t[1]/time.Second, t[2]/time.Second)
		return err
	case l.Daemon:
		return nil // none is running
	case l.Connections:
		return listConnections(out, withoutError(c.Connections), names, l.Persistent)
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
	case l.TunInfo:
		kind = tunnelInfoList()
	}
	kind.unsorted, kind.names = l.NoSort, names
	if !cmd.Named {
		return writeServices(out, c.status(), kind)
	}
	found := c.find(cmd.Service.ServiceKey)
	if found == nil {
		return refused(1, "No such service")
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
