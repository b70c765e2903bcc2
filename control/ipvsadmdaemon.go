package control

import (
	"net/netip"
	"slices"

	"pktdirector/lvs"
)

// DaemonOptions are those of --start-daemon and --stop-daemon.
type DaemonOptions struct {
	State     string // master or backup
	Interface string // "": none named
	SyncID    int
}

// daemonOptions are ipvsadm's options of --start-daemon.
func daemonOptions() []string {
	return []string{"syncid", "sync-maxlen", "mcast-interface", "mcast-group", "mcast-port", "mcast-ttl"}
}

// addDaemonOptions adds what they do to an option table.
func (c *commandLine) addDaemonOptions(table map[string]option) {
	d := &c.Daemon
	ignored := func(int64) {}
	table["syncid"] = numberOption("syncid", "syncid", 0, 255, func(n int64) { d.SyncID = int(n) })
	table["sync-maxlen"] = numberOption("sync-maxlen", "sync-maxlen", 1, 65535-20-8, ignored) // of an IP packet with UDP
	table["mcast-port"] = numberOption("mcast-port", "mcast-port", 1, 65535, ignored)
	table["mcast-ttl"] = numberOption("mcast-ttl", "mcast-ttl", 1, 255, ignored)
	table["mcast-interface"] = textOption("mcast-interface", &d.Interface)
	table["mcast-group"] = option{"mcast-group", needsValue, func(v string, _ bool) error {
		ip, err := netip.ParseAddr(v)
		switch {
		case err == nil && ip.Is6() && !ip.IsMulticast():
			return refused(2, "invalid IPv6 mcast-group `%s'", v)
		case err != nil || !ip.IsMulticast():
			return refused(2, "invalid IPv4 mcast-group `%s'", v)
		}
		return nil
	}}
}

// daemonState reads the value of --start-daemon and --stop-daemon.
func (c *commandLine) daemonState(v string) error {
	if v == "master" || v == "backup" {
		c.Daemon.State = v
		return nil
	}
	if c.Op == '-' {
		return refused(2, "illegal start_daemon specified")
	}
	return refused(2, "illegal start-daemon parameter specified")
}

// daemon answers for a sync daemon, which this director has none of.
func (c *Commander) daemon(cmd *Command) error {
	switch {
	case cmd.Op == '-':
		return refused(255, "No daemon is running")
	case cmd.Daemon.Interface != "" && c.Interfaces != nil && !slices.Contains(c.Interfaces(), cmd.Daemon.Interface):
		return refused(255, "No such device")
	}
	return refused(255, "--start-daemon %s: there is no sync daemon in this director: leave it out", cmd.Daemon.State)
}

// knownEngine reports whether a persistence engine can be named.
func knownEngine(s *lvs.VirtualService) bool { return s.Engine == "" || s.Engine == "sip" }
