package migrate

import (
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"pktdirector/control"
	"pktdirector/sched"
)

// isIpvsadm reports whether a word is the program, as in scripts of its commands.
func isIpvsadm(word string) bool { return path.Base(word) == "ipvsadm" }

// ipvsadm reads command lines of ipvsadm, one a line, as "ipvsadm -S" writes and
// "ipvsadm -R" reads them. A line's program name, and lines of comments, as scripts
// and ipvsadm-restore have them, are passed over.
func (m *migration) ipvsadm(f File) {
	line := 0
	for text := range strings.Lines(f.Text) {
		line++
		words := strings.Fields(text)
		if len(words) > 0 && isIpvsadm(words[0]) {
			words = words[1:]
		}
		if len(words) == 0 || words[0][0] == '#' {
			continue
		}
		at, what := place{f.Name, line}, strings.Join(words, " ")
		c, err := control.ParseCommand(words, m.Names)
		if err != nil {
			m.remark(at, what, "is left out: ipvsadm would refuse it, too: %s", err)
			continue
		}
		if err := m.command(&c, at, what); err != nil {
			m.remark(at, what, "is left out: %v", err)
		}
	}
}

var (
	errNoService = errors.New("no service of that address, protocol and port, or mark, stands above")
	errNoServer  = errors.New("the service has no such server")
)

// command does what a command line says. Its error tells why nothing was done.
func (m *migration) command(c *control.Command, at place, what string) error {
	s := m.index[c.Service.ServiceKey]
	switch c.Op {
	case 'C':
		m.services = nil
		clear(m.index)
		return nil
	case 's':
		t := &m.timeouts
		for i, d := range c.Set {
			if d != 0 {
				*[]*time.Duration{&t.TCP, &t.TCPFin, &t.UDP}[i] = d
			}
		}
		return nil
	case 'Z':
		return errors.New("counters are no part of a configuration")
	case '+', '-':
		return errors.New("the director has no sync daemon")
	case 'L', 'S', 'R', 'h', 'v':
		return errors.New("it changes no rules")
	case 'A':
		return m.addService(c, at, what)
	}
	if s == nil {
		return errNoService
	}
	return m.change(c, s, at, what)
}

func (m *migration) addService(c *control.Command, at place, what string) error {
	if err := knownScheduler(c.Service.Scheduler); err != nil {
		return err
	}
	if _, err := m.add(c.Service, at, what); err != nil {
		return err
	}
	m.engine(c, at, what)
	return nil
}

func knownScheduler(name string) error {
	if sched.Known(name) {
		return nil
	}
	return fmt.Errorf("scheduler %q is not known: one of %s", name, strings.Join(sched.Names(), ", "))
}

// engine tells that a persistence engine does nothing here.
func (m *migration) engine(c *control.Command, at place, what string) {
	if c.Service.Engine != "" {
		m.remark(at, what, "--pe %s is taken over and has no effect: clients stay by their addresses", c.Service.Engine)
	}
}

// change does what a command line says of a service that is there.
func (m *migration) change(c *control.Command, s *taken, at place, what string) error {
	switch i := s.server(c.Server.ServerKey); c.Op {
	case 'E':
		if err := knownScheduler(c.Service.Scheduler); err != nil {
			return err
		}
		servers := s.Servers
		s.VirtualService = c.Service
		s.Servers = servers
		m.engine(c, at, what)
	case 'D':
		delete(m.index, s.ServiceKey)
		m.services = slices.DeleteFunc(m.services, func(t *taken) bool { return t == s })
	case 'a':
		if c.Server.Lower > c.Server.Upper {
			return errors.New("the lower threshold -y is above the upper one -x")
		}
		return s.addServer(c.Server, at)
	case 'e':
		if i < 0 {
			return errNoServer
		}
		if was := s.Servers[i].Method; was != c.Server.Method {
			m.remark(at, what, "changes the method from %s to %s, as ipvsadm does where the line names no method and so means -g", was, c.Server.Method)
		}
		s.Servers[i], s.servers[i] = c.Server, at
	case 'd':
		if i < 0 {
			return errNoServer
		}
		delete(s.known, c.Server.ServerKey)
		s.Servers, s.servers = slices.Delete(s.Servers, i, i+1), slices.Delete(s.servers, i, i+1)
	}
	return nil
}
