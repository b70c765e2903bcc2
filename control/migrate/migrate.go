package migrate

import (
	"fmt"
	"slices"
	"strings"

	"pktdirector/control"
	"pktdirector/lvs"
)

// Format is what kind of file is taken over.
type Format string

// The formats that are known.
const (
	Ipvsadm    Format = "ipvsadm"    // what "ipvsadm -S" writes
	Keepalived Format = "keepalived" // keepalived.conf
)

// File is a file's text, and its name for messages.
type File struct{ Name, Text string }

// Options say how a file is to be read.
type Options struct {
	Format Format // "": found out
	// Links are the interfaces that the director shall work on; none: a name to
	// fill in is written.
	Links []string
	// Names finds hosts and ports by name, in lines of ipvsadm; nil: none.
	Names *control.Names
	// ConfigID is what keepalived is started with as -i: which lines that begin
	// with @ count. "": those for a name are left out, and told.
	ConfigID string
	// Include finds the files that an include line of the file from names; nil:
	// include lines are left out, and told.
	Include func(from, pattern string) ([]File, error)
}

// Remark is one thing that was not taken over, or not as it was.
type Remark struct {
	File string `json:"file"`
	Line int    `json:"line"`                // from 1; 0: of the file as a whole
	Last int    `json:"last_line,omitempty"` // of a block
	What string `json:"what"`                // as it stands there
	Why  string `json:"why"`                 // what became of it, and what to do
}

// String formats r as one line: "keepalived.conf:41: delay_loop 6: ...".
func (r Remark) String() string {
	place := r.File
	if r.Line > 0 {
		place += fmt.Sprintf(":%d", r.Line)
	}
	if r.Last > r.Line {
		place += fmt.Sprintf("-%d", r.Last)
	}
	if r.What == "" {
		return place + ": " + r.Why
	}
	return place + ": " + r.What + ": " + r.Why
}

// Result is what became of a file.
type Result struct {
	Format   Format   `json:"format"`
	Services int      `json:"services"` // that were taken over
	Servers  int      `json:"servers"`  // of all services
	Config   string   `json:"config"`   // YAML
	Remarks  []Remark `json:"remarks"`  // in the order of lines
}

// place is where something stands.
type place struct {
	file string
	line int
}

func (p place) String() string { return fmt.Sprintf("%s:%d", p.file, p.line) }

// taken is a service that was read, and where.
type taken struct {
	lvs.VirtualService
	at      place
	what    string
	servers []place                // of each server
	known   map[lvs.ServerKey]bool // the servers
}

// migration is one file being taken over.
type migration struct {
	Options
	services []*taken
	index    map[lvs.ServiceKey]*taken
	timeouts control.Timeouts
	servedBy int // servers of all services
	remarks  []Remark
	told     map[Remark]bool
	order    map[string]int // of files, as they came
}

// Bounds of what is read.
const (
	maxText     = 16 << 20 // bytes, all included files together
	maxServices = 1 << 16
	maxServers  = 1 << 18
)

// Import takes over a file. Its error says why the file cannot be read at all.
func Import(f File, o Options) (Result, error) {
	m := &migration{Options: o, index: map[lvs.ServiceKey]*taken{}, told: map[Remark]bool{}, order: map[string]int{}}
	if len(f.Text) > maxText {
		return Result{}, fmt.Errorf("%s: is larger than %d bytes: no configuration of a director is", f.Name, maxText)
	}
	f.Text = strings.TrimPrefix(f.Text, "\ufeff")
	if m.Format == "" {
		m.Format = detect(f.Text)
	}
	var err error
	switch m.Format {
	case Ipvsadm:
		m.ipvsadm(f)
	case Keepalived:
		err = m.keepalived(f)
	case "":
		err = fmt.Errorf("%s: has neither a line of ipvsadm (-A -t ...) nor a block of keepalived.conf (virtual_server ... {): say which it is by --format", f.Name)
	default:
		err = fmt.Errorf("format %q is not known: ipvsadm or keepalived", string(m.Format))
	}
	if err != nil {
		return Result{}, err
	}
	return m.result(f.Name)
}

// detect finds a file's format by its first line that says something; "" where it
// has none.
func detect(text string) Format {
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 0 || words[0][0] == '#' || words[0][0] == '!':
		case words[0][0] == '-' || isIpvsadm(words[0]):
			return Ipvsadm
		case strings.Contains(text, "{") || strings.HasPrefix(words[0], "include"):
			return Keepalived
		default:
			return ""
		}
	}
	return ""
}

// remark notes what was not taken over, once.
func (m *migration) remark(at place, what, format string, args ...any) {
	m.remarkTo(at, 0, what, format, args...)
}

func (m *migration) remarkTo(at place, last int, what, format string, args ...any) {
	if _, there := m.order[at.file]; !there {
		m.order[at.file] = len(m.order)
	}
	r := Remark{File: at.file, Line: at.line, Last: last, What: shown(what), Why: oneLine(fmt.Sprintf(format, args...))}
	if !m.told[r] { // the services of a group share their servers
		m.told[r] = true
		m.remarks = append(m.remarks, r)
	}
}

// oneLine makes one line of an error of several, or with a line's end.
func oneLine(text string) string {
	return strings.ReplaceAll(strings.TrimSpace(text), "\n", "; ")
}

// shown keeps a line of a message to one line of reasonable length.
func shown(what string) string {
	what = strings.Join(strings.Fields(what), " ")
	if r := []rune(what); len(r) > 100 {
		what = string(r[:97]) + "..."
	}
	return what
}

// add takes a service over. Its error tells why not.
func (m *migration) add(s lvs.VirtualService, at place, what string) (*taken, error) {
	if there := m.index[s.ServiceKey]; there != nil {
		return nil, fmt.Errorf("the service %s stands already in %s", s.ServiceKey, there.at)
	}
	if len(m.services) >= maxServices {
		return nil, fmt.Errorf("there are more than %d services", maxServices)
	}
	t := &taken{VirtualService: s, at: at, what: what, known: map[lvs.ServerKey]bool{}}
	m.services = append(m.services, t)
	m.index[s.ServiceKey] = t
	return t, nil
}

// fillIn is what stands where the file cannot say what the configuration needs.
const fillIn = "FILL-IN"

// result writes the configuration, without what it cannot say.
func (m *migration) result(name string) (Result, error) {
	c := &control.Config{Control: control.DefaultSocket, Timeouts: m.timeouts}
	n := control.Notes{
		Head:     []string{fmt.Sprintf("Taken over from %s (%s) by \"pktdirector import\".", name, m.Format), "docs/director.yaml explains every key."},
		Links:    "the interfaces the director works on",
		List:     "what is balanced; servers in the order in which they were added",
		Services: map[int][]string{},
	}
	for _, l := range m.Links {
		c.Links = append(c.Links, control.Link{Name: l, Type: control.AFPacket})
	}
	if len(c.Links) == 0 {
		c.Links = []control.Link{{Name: fillIn, Type: control.AFPacket}}
		n.Links = "FILL IN: the interfaces that packets for the VIPs come in by, and those towards the real servers, as \"ip link\" shows them"
		m.remark(place{file: name}, "", "does not say which interfaces the director works on: put them in place of %s under links, or name each by --link", fillIn)
	}
	r := Result{Format: m.Format, Remarks: []Remark{}}
	var wanted lvs.Ruleset
	for _, s := range m.services {
		wanted.Services = append(wanted.Services, s.VirtualService)
	}
	if size := len((&control.Config{Links: c.Links, Ruleset: wanted}).Annotated(control.Notes{})); size > control.MaxFile {
		return r, fmt.Errorf("%s: its %d services with their servers make a configuration of %d bytes: %d at most can be", name, len(m.services), size, control.MaxFile)
	}
	faults := c.Faults(wanted.Services)
	for at, s := range m.services {
		if f, wrong := faults[at]; wrong && !m.sayable(s, f) {
			continue
		}
		i := len(c.Ruleset.Services)
		n.Services[i] = append(n.Services[i], fmt.Sprintf("from %s: %s", s.at, shown(s.what)))
		if s.Mark != 0 {
			n.Services[i] = append(n.Services[i], fmt.Sprintf("FILL IN above, in a section marks:  - {fwmark: %d, dst: ADDRESS, protocol: tcp, port: PORT}", s.Mark))
			m.remark(s.at, s.what, "which packets have the mark %d, iptables or nftables say, and the director cannot see: write rules under marks", s.Mark)
		}
		c.Ruleset.Services = append(c.Ruleset.Services, s.VirtualService)
		r.Services, r.Servers = r.Services+1, r.Servers+len(s.Servers)
	}
	r.Config = c.Annotated(n)
	if _, err := control.Parse("director.yaml", []byte(r.Config)); err != nil {
		return r, fmt.Errorf("%s: what was read makes no configuration: %w", name, err)
	}
	slices.SortStableFunc(m.remarks, func(a, b Remark) int {
		if a.File != b.File {
			return m.order[a.File] - m.order[b.File]
		}
		return a.Line - b.Line
	})
	r.Remarks = append(r.Remarks, m.remarks...)
	return r, nil
}

// sayable takes servers out of a service that a configuration cannot say, and tells.
// It reports whether the service itself can be said.
func (m *migration) sayable(s *taken, f control.ServiceFault) bool {
	if f.Why != "" {
		m.remark(s.at, s.what, "the service is left out: %s", f.Why)
		return false
	}
	var servers []lvs.RealServer
	for i, rs := range s.Servers {
		if why, wrong := f.Servers[i]; wrong {
			m.remark(s.servers[i], "server "+rs.ServerKey.String()+" of "+s.ServiceKey.String(), "the server is left out: %s", why)
			continue
		}
		servers = append(servers, rs)
	}
	s.Servers = servers
	return true
}

// addServer adds a server. Its error tells why not.
func (s *taken) addServer(rs lvs.RealServer, at place) error {
	if s.known[rs.ServerKey] {
		return fmt.Errorf("the service has the server %s already, by %s", rs.ServerKey, s.servers[s.server(rs.ServerKey)])
	}
	s.known[rs.ServerKey] = true
	s.Servers, s.servers = append(s.Servers, rs), append(s.servers, at)
	return nil
}

// server returns the place of a server among the service's; -1 where it is none.
func (s *taken) server(k lvs.ServerKey) int {
	if !s.known[k] {
		return -1
	}
	return slices.IndexFunc(s.Servers, func(rs lvs.RealServer) bool { return rs.ServerKey == k })
}
