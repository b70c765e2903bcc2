package control

import (
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// option is one of ipvsadm's options: its name in messages, and what it does with
// its value; given tells whether there is one. One without a name may come any
// number of times, with any command.
type option struct {
	name  string
	value valueKind
	apply func(value string, given bool) error
}

type valueKind uint8

const (
	noValue valueKind = iota
	needsValue
	mayHaveValue // the next word, unless it is an option
)

// optionOrder is the order in which ipvsadm looks whether options go with the
// command: of several wrong ones the first is named.
func optionOrder() []string {
	return []string{"numeric", "connection", "service-address", "scheduler", "persistent", "netmask", "real-server", "forwarding-method",
		"weight", "u-threshold", "l-threshold", "mcast-interface", "timeout", "daemon", "stats", "rate", "thresholds", "persistent-conn",
		"nosort", "syncid", "exact", "ops", "pe", "sched-flags", "mcast-group", "mcast-port", "mcast-ttl", "sync-maxlen",
		"tun-info", "tun-type", "tun-port", "tun-nocsum", "tun-csum", "tun-remcsum"}
}

// options tells what each option does, by its long and by its short name.
func (c *commandLine) options() (long map[string]option, short map[byte]option) {
	l := &c.List
	long = map[string]option{
		"tcp-service": c.serviceOption(packet.TCP), "udp-service": c.serviceOption(packet.UDP), "sctp-service": c.serviceOption(packet.SCTP),
		"fwmark-service": {"service-address", needsValue, c.fwmark},
		"ipv6": {"", noValue, func(string, bool) error {
			if c.Service.Mark == 0 || c.Service.V6 {
				return refused(2, "-6 used before -f\n")
			}
			c.Service.V6 = true
			return nil
		}},
		"scheduler": textOption("scheduler", &c.scheduler), "persistent": {"persistent", mayHaveValue, c.persistence},
		"netmask": {"netmask", needsValue, c.netmask}, "pe": textOption("pe", &c.Service.Engine), "ops": flagOption("ops", &c.Service.OnePacket),
		"sched-flags": textOption("sched-flags", &c.flags), "real-server": {"real-server", needsValue, c.realServer},
		"gatewaying": c.methodOption(lvs.Route), "ipip": c.methodOption(lvs.Tunnel), "masquerading": c.methodOption(lvs.Masq),
		"fullnat":     c.methodOption(lvs.FullNAT), // not ipvsadm's: what -S says of such servers can be read again
		"weight":      numberOption("weight", "weight", 0, lvs.MaxWeight, func(n int64) { c.Server.Weight = int(n) }),
		"u-threshold": numberOption("u-threshold", "u_threshold", 0, 1<<31-1, func(n int64) { c.Server.Upper = uint32(n) }),
		"l-threshold": numberOption("l-threshold", "l_threshold", 0, 1<<31-1, func(n int64) { c.Server.Lower = uint32(n) }),
		"connection":  flagOption("connection", &l.Connections), "timeout": flagOption("timeout", &l.Timeout), "daemon": flagOption("daemon", &l.Daemon),
		"stats": flagOption("stats", &l.Stats), "rate": flagOption("rate", &l.Rate), "thresholds": flagOption("thresholds", &l.Thresholds),
		"persistent-conn": flagOption("persistent-conn", &l.Persistent), "sort": {}, "nosort": flagOption("nosort", &l.NoSort),
		"numeric": flagOption("numeric", &c.Numeric), "exact": flagOption("exact", &l.Exact), "tun-info": flagOption("tun-info", &l.TunInfo),
	}
	c.addTunnelOptions(long)
	c.addDaemonOptions(long)
	short = map[byte]option{}
	for letter, name := range map[byte]string{
		't': "tcp-service", 'u': "udp-service", 'f': "fwmark-service", '6': "ipv6", 's': "scheduler", 'p': "persistent", 'M': "netmask",
		'r': "real-server", 'g': "gatewaying", 'i': "ipip", 'm': "masquerading", 'w': "weight", 'x': "u-threshold", 'y': "l-threshold",
		'c': "connection", 'n': "numeric", 'o': "ops", 'b': "sched-flags", 'X': "exact",
	} {
		short[letter] = long[name]
	}
	return long, short
}

func flagOption(name string, to *bool) option {
	return option{name, noValue, func(string, bool) error { *to = true; return nil }}
}

func textOption(name string, to *string) option {
	return option{name, needsValue, func(v string, _ bool) error { *to = v; return nil }}
}

func numberOption(name, word string, least, most int64, set func(int64)) option {
	return option{name, needsValue, func(v string, _ bool) error {
		n, ok := integer(v, least, most)
		if !ok {
			return refused(2, "illegal %s specified", word)
		}
		set(n)
		return nil
	}}
}

// integer reads a decimal number as C's strtol does, which passes over blanks in
// front and takes a sign.
func integer(s string, least, most int64) (int64, bool) {
	s = strings.TrimLeft(s, " \t\n\v\f\r")
	n, err := strconv.ParseInt(s, 10, 64)
	return n, err == nil && n >= least && n <= most
}

func (c *commandLine) methodOption(m lvs.Method) option {
	return option{"forwarding-method", noValue, func(string, bool) error { c.Server.Method = m; return nil }}
}

func (c *commandLine) serviceOption(proto packet.Proto) option {
	return option{"service-address", needsValue, func(v string, _ bool) error {
		addr, port, _, err := c.endpointOf(v, proto)
		if err != nil {
			return refused(2, "illegal virtual server address[:port] specified")
		}
		c.Named = true
		c.Service.ServiceKey = lvs.ServiceKey{Proto: proto, VIP: addr, Port: port}
		return nil
	}}
}

func (c *commandLine) fwmark(v string, _ bool) error {
	mark, ok := integer(v, 1, 1<<32-1)
	if !ok {
		return refused(2, "invalid fwmark value `%s' specified", v)
	}
	c.Named = true
	c.Service.ServiceKey = lvs.ServiceKey{Mark: uint32(mark)}
	return nil
}

func (c *commandLine) persistence(v string, given bool) error {
	c.Service.Persist = defaultPersist
	if !given {
		return nil
	}
	n, ok := integer(v, 1, int64(lvs.MaxPersist/time.Second))
	if !ok {
		return refused(2, "invalid timeout value `%s' specified", v)
	}
	c.Service.Persist = time.Duration(n) * time.Second
	return nil
}

// netmask reads a mask as far as the service is known yet.
func (c *commandLine) netmask(v string, _ bool) error {
	c.mask = v
	if c.Named && !c.Service.Is4() {
		_, _, err := maskOf(v, false)
		return err
	}
	if _, ok := inetAton(v); !ok {
		return refused(2, "illegal virtual server persistent mask specified")
	}
	return nil
}

// realServer reads the server's address; its port's name is one of the service's
// protocol, which must have been told before.
func (c *commandLine) realServer(v string, _ bool) error {
	addr, port, hasPort, err := c.endpointOf(v, c.Service.Proto)
	if err != nil {
		return refused(2, "illegal real server address[:port] specified")
	}
	c.Server.RIP, c.Server.Port, c.hasPort = addr, port, hasPort
	return nil
}
