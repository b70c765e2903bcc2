package control

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"

	"pktdirector/lvs"
)

// Export is the state of a running director as a configuration file, the answer to
// GET /v1/config.
type Export struct {
	Config string `json:"config"` // YAML, which Parse reads
	// Remarks are what runs and cannot stand in a file, one line each with the
	// reason. It stands in the file as comments.
	Remarks []string `json:"remarks,omitempty"`
}

// showConfig answers GET /v1/config.
func (a *api) showConfig(*http.Request) (Export, error) {
	c := a.Config()
	return c.Export(), nil
}

// Export reads the running state as a configuration file.
func (c *Client) Export(ctx context.Context) (Export, error) {
	var e Export
	body, err := c.do(ctx, http.MethodGet, "/v1/config", nil)
	if err != nil {
		return e, err
	}
	defer body.Close()
	if err := json.NewDecoder(body).Decode(&e); err != nil {
		return e, fmt.Errorf("director at %s: configuration: %w", c.socket, err)
	}
	return e, nil
}

// Export writes c as a configuration file with headings, which Parse reads back
// as c. What ipvsadm's commands allow and a file does not (a VIP that no client
// reaches, a server that is the host itself) is left out, told, and written as a
// comment.
func (c *Config) Export() Export {
	sayable, notes, left := c.sayable()
	notes.Head = []string{"The state of a running director, as \"pktdirector config export\" found it.",
		"docs/director.yaml explains every key."}
	notes.Links = "the interfaces the director works on"
	notes.Marks = "which packets belong to a service by firewall mark; the first rule that matches counts"
	notes.List = "what is balanced; servers in the order in which they were added"
	e := Export{Config: sayable.Annotated(notes)}
	for _, l := range left {
		e.Remarks = append(e.Remarks, l.why)
	}
	if _, err := Parse("export", []byte(e.Config)); err != nil {
		e.Remarks = append(e.Remarks, fmt.Sprintf("\"pktdirector check\" will refuse the file: %v", err))
	}
	return e
}

// leftOut is a service, or a server of one, that a configuration file cannot say.
type leftOut struct {
	service int // its index before
	server  int // -1: the service
	why     string
}

// sayable returns what of c a configuration file can say, with notes about what it
// cannot.
func (c *Config) sayable() (*Config, Notes, []leftOut) {
	said := *c
	said.Ruleset.Services = nil
	n := Notes{Services: map[int][]string{}}
	var left []leftOut
	leave := func(i, j int, what, why string) {
		l := leftOut{i, j, fmt.Sprintf("%s is left out: %s", what, why)}
		left = append(left, l)
		at := len(said.Ruleset.Services)
		n.Services[at] = append(n.Services[at], l.why)
	}
	faults := c.Faults(c.Ruleset.Services)
	for i := range c.Ruleset.Services {
		s := c.Ruleset.Services[i]
		f, wrong := faults[i]
		if !wrong {
			said.Ruleset.Services = append(said.Ruleset.Services, s)
			continue
		}
		if f.Why != "" {
			leave(i, -1, fmt.Sprintf("service %s with %d servers", s.ServiceKey, len(s.Servers)), f.Why)
			continue
		}
		var servers []lvs.RealServer
		for j, rs := range s.Servers {
			if why, wrong := f.Servers[j]; wrong {
				leave(i, j, fmt.Sprintf("server %s of service %s", rs.ServerKey, s.ServiceKey), why)
				continue
			}
			servers = append(servers, rs)
		}
		s.Servers = servers
		said.Ruleset.Services = append(said.Ruleset.Services, s)
	}
	return &said, n, left
}

// ServiceFault is why a service cannot stand in a configuration file.
type ServiceFault struct {
	Why     string         // of the service itself; "": of servers alone
	Servers map[int]string // of each server that cannot, by its index
}

// Faults finds the services that Parse would refuse in a file with c's links, by
// their index, each looked at by itself. It asks Parse, and of many services those
// that are right only together.
func (c *Config) Faults(services []lvs.VirtualService) map[int]ServiceFault {
	faults := map[int]ServiceFault{}
	var look func(from, to int)
	look = func(from, to int) {
		switch {
		case from >= to || c.fault(services[from:to]...) == "":
		case to-from == 1:
			faults[from] = c.serviceFault(&services[from])
		default:
			half := (from + to) / 2
			look(from, half)
			look(half, to)
		}
	}
	look(0, len(services))
	return faults
}

// serviceFault finds what is wrong with a service that is refused.
func (c *Config) serviceFault(s *lvs.VirtualService) ServiceFault {
	bare := *s
	bare.Servers = nil
	if why := c.fault(bare); why != "" {
		return ServiceFault{Why: why}
	}
	f := ServiceFault{Servers: map[int]string{}}
	for j, rs := range s.Servers {
		bare.Servers = []lvs.RealServer{rs}
		if why := c.fault(bare); why != "" {
			f.Servers[j] = why
		}
	}
	return f
}

// fault returns what Parse says of a file that has the services and nothing else,
// without the place in a list; "" where it takes it.
func (c *Config) fault(services ...lvs.VirtualService) string {
	alone := Config{Links: c.Links, Control: DefaultSocket, Ruleset: lvs.Ruleset{Services: services}}
	if len(alone.Links) == 0 {
		alone.Links = []Link{{Name: "any", Type: AFPacket}}
	}
	doc, root, err := parseDocument("", []byte(alone.Annotated(Notes{})))
	if err != nil {
		return oneLine(err.Error())
	}
	decodeConfig(&Config{Control: DefaultSocket}, root)
	if doc.err() == nil {
		return ""
	}
	text := strings.TrimPrefix(doc.faults[0].text, "services[0].")
	return oneLine(strings.TrimPrefix(text, "servers[0]."))
}

// oneLine keeps a text inside a comment.
func oneLine(s string) string { return strings.Join(strings.Fields(s), " ") }
