package migrate

import (
	"fmt"
	"strings"
	"time"

	"pktdirector/lvs"
)

// keepalived reads keepalived.conf (keepalived.conf(5)): its virtual servers, and
// the timeouts of its global definitions.
func (m *migration) keepalived(f File) error {
	r := &reader{migration: m, defined: map[string]string{}}
	if err := r.file(f, 0); err != nil {
		return err
	}
	if r.skip > 0 {
		return fmt.Errorf("%s: a block that a condition (@) leaves out is not closed: one } is missing", f.Name)
	}
	top, err := blocks(r.lines)
	if err != nil {
		return err
	}
	groups := map[string]*statement{}
	for _, s := range top {
		if s.key() != "virtual_server_group" {
			continue
		}
		name := strings.Join(s.args(), " ")
		if first := groups[name]; first != nil {
			m.block(s, "is left out: a group of that name stands already in %s", first.at)
			continue
		}
		groups[name] = s
	}
	used := map[*statement]bool{}
	for _, s := range top {
		switch s.key() {
		case "virtual_server":
			m.virtualServer(s, groups, used)
		case "virtual_server_group":
		case "global_defs":
			m.globals(s)
		default:
			m.other(s)
		}
	}
	for _, s := range top {
		if s.key() == "virtual_server_group" && groups[strings.Join(s.args(), " ")] == s && !used[s] {
			m.block(s, "is left out: no virtual_server names the group")
		}
	}
	return nil
}

// block notes that a statement with all of its block was not taken over.
func (m *migration) block(s *statement, format string, args ...any) {
	last := 0
	if s.last > s.at.line {
		last = s.last
	}
	m.remarkTo(s.at, last, s.String(), format, args...)
}

// other tells of what is not about virtual servers.
func (m *migration) other(s *statement) {
	switch key := s.key(); {
	case strings.HasPrefix(key, "vrrp_") || key == "garp_group" || key == "track_file" || key == "track_process" || key == "bfd_instance":
		m.block(s, "is left out: VRRP stays keepalived's; docs/run.md tells how two directors take turns")
	case strings.HasPrefix(key, "static_"):
		m.block(s, "is left out: addresses, routes and rules are the host's; routes of the director alone stand under routes")
	case key == "SSL":
		m.block(s, "%s", noChecks)
	default:
		m.block(s, "is left out: it is about no virtual server")
	}
}

// globals reads lvs_timeouts of global_defs.
func (m *migration) globals(s *statement) {
	left := false
	for _, g := range s.body {
		switch {
		case g.key() == "lvs_timeouts":
			m.lvsTimeouts(g)
		case strings.HasPrefix(g.key(), "lvs_"):
			m.block(g, "is left out: %s", map[bool]string{true: "the director has no sync daemon", false: "the director has nothing like it"}[g.key() == "lvs_sync_daemon"])
		default:
			left = true
		}
	}
	if left {
		m.block(s, "is left out but for lvs_timeouts: it is about keepalived itself")
	}
}

func (m *migration) lvsTimeouts(s *statement) {
	args := s.args()
	for i := 0; i < len(args); i += 2 {
		to := map[string]*time.Duration{"tcp": &m.timeouts.TCP, "tcpfin": &m.timeouts.TCPFin, "udp": &m.timeouts.UDP}[args[i]]
		if to == nil || i+1 == len(args) {
			m.remark(s.at, s.String(), "%q is left out: write tcp, tcpfin or udp and a number of seconds", strings.Join(args[i:], " "))
			return
		}
		n, err := number(args[i+1], 1, int64(lvs.MaxPersist/time.Second))
		if err != nil {
			m.remark(s.at, s.String(), "%s is left out: %v", args[i], err)
			continue
		}
		*to = time.Duration(n) * time.Second
	}
}
