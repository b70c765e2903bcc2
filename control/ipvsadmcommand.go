package control

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// CommandError is a command line that ipvsadm or the kernel refuses, with the
// exit code and the words of ipvsadm 1.31.
type CommandError struct {
	Code int    // 2: found by ipvsadm itself; 255: by the kernel, or while reading options
	Text string // without the line's end
}

func (e *CommandError) Error() string { return e.Text }

func refused(code int, format string, a ...any) error {
	return &CommandError{Code: code, Text: fmt.Sprintf(format, a...)}
}

// hint is what ipvsadm says when the command line makes no sense at all.
const hint = "Try `ipvsadm -h' or 'ipvsadm --help' for more information."

// Command is one ipvsadm command line.
type Command struct {
	// Op is the command's short option: A E D C R S a e d L Z. Setting the
	// timeouts is 's'.
	Op      byte
	Service lvs.VirtualService // of A and E; its key of the others
	Named   bool               // a service was named
	Server  lvs.RealServer     // of a and e; its key of d
	List    ListOptions
	Set     [3]time.Duration // tcp, tcpfin, udp; 0 keeps
	Numeric bool
}

// ListOptions choose what -L shows.
type ListOptions struct {
	Connections, Stats, Rate, Thresholds, Persistent, Timeout, NoSort, Exact bool
}

// commandLine collects the options as they come.
type commandLine struct {
	Command
	given     map[string]bool
	scheduler string
	flags     string
	mask      string
	server    string
	v6        bool
	tunType   string
	tunPort   string
	values    []string // of --set
}

// option is one of ipvsadm's options: its long name, and what it does with its
// value.
type option struct {
	long  string
	value valueKind
	apply func(c *commandLine, value string) error
}

type valueKind uint8

const (
	noValue valueKind = iota
	needsValue
	mayHaveValue // the next word, unless it is an option
)

// commands lists the command options: the short letter, the long names, and
// which options go with it: those it needs first.
type commandRule struct {
	op      byte
	long    []string
	needs   []string
	accepts []string
}

func commandRules() []commandRule {
	service := []string{"scheduler", "persistent", "netmask", "pe", "ops", "sched-flags", "ipv6"}
	server := []string{"ipv6", "forwarding-method", "weight", "u-threshold", "l-threshold", "tun-type", "tun-port", "tun-nocsum", "tun-csum", "tun-remcsum"}
	return []commandRule{
		{'A', []string{"add-service"}, []string{"service-address"}, service},
		{'E', []string{"edit-service"}, []string{"service-address"}, service},
		{'D', []string{"delete-service"}, []string{"service-address"}, []string{"ipv6"}},
		{'C', []string{"clear"}, nil, nil},
		{'R', []string{"restore"}, nil, []string{"numeric"}},
		{'S', []string{"save"}, nil, []string{"numeric"}},
		{'a', []string{"add-server"}, []string{"service-address", "real-server"}, server},
		{'e', []string{"edit-server"}, []string{"service-address", "real-server"}, server},
		{'d', []string{"delete-server"}, []string{"service-address", "real-server"}, []string{"ipv6"}},
		{'L', []string{"list"}, nil, []string{"service-address", "ipv6", "numeric", "connection", "timeout", "daemon", "stats", "rate", "thresholds", "persistent-conn", "sort", "nosort", "exact"}},
		{'Z', []string{"zero"}, nil, []string{"service-address", "ipv6"}},
		{'s', []string{"set"}, nil, nil},
	}
}

// shortOptions gives the long names of the short options.
func shortOptions() map[byte]string {
	return map[byte]string{
		't': "tcp-service", 'u': "udp-service", 'f': "fwmark-service", '6': "ipv6", 's': "scheduler", 'p': "persistent", 'M': "netmask",
		'r': "real-server", 'g': "gatewaying", 'i': "ipip", 'm': "masquerading", 'w': "weight", 'x': "u-threshold", 'y': "l-threshold",
		'c': "connection", 'n': "numeric", 'o': "ops", 'b': "sched-flags",
	}
}

// ParseCommand reads an ipvsadm command line, without the program's name. Its
// errors are *CommandError.
func ParseCommand(args []string) (Command, error) {
	c := &commandLine{given: map[string]bool{}}
	rest := args
	rule, rest, err := c.command(rest)
	if err != nil {
		return Command{}, err
	}
	if rest, err = c.read(rest); err != nil {
		return Command{}, err
	}
	if rule.op == 's' {
		rest = append(c.values, rest...)
		if len(rest) != 3 {
			return Command{}, refused(2, "--set option requires 3 timeout values")
		}
		return c.timeouts(rest)
	}
	if len(rest) > 0 {
		return Command{}, refused(2, "unexpected argument %s", rest[0])
	}
	if err := c.check(rule); err != nil {
		return Command{}, err
	}
	return c.Command, c.finish()
}

// command reads the first word, which names the command; options may be joined
// to its letter.
func (c *commandLine) command(args []string) (commandRule, []string, error) {
	none := commandRule{}
	if len(args) == 0 {
		args = []string{"-L"}
	}
	word := args[0]
	for _, rule := range commandRules() {
		switch {
		case strings.HasPrefix(word, "--") && slices.Contains(rule.long, word[2:]):
			c.Op = rule.op
			return rule, args[1:], nil
		case len(word) > 1 && word[0] == '-' && rule.op != 's' && (word[1] == rule.op || word[1] == 'l' && rule.op == 'L'):
			c.Op = rule.op
			if rest := word[2:]; rest != "" {
				return rule, append([]string{"-" + rest}, args[1:]...), nil
			}
			return rule, args[1:], nil
		}
	}
	return none, nil, refused(255, hint)
}

// read applies the options; it returns the words that are none.
func (c *commandLine) read(args []string) (rest []string, err error) {
	options := c.options()
	for len(args) > 0 {
		word := args[0]
		args = args[1:]
		switch {
		case c.Op == 's' && len(word) > 1 && word[0] == '-':
			return nil, refused(255, "%s: unknown option", word)
		case strings.HasPrefix(word, "--"):
			name, value, attached := strings.Cut(word[2:], "=")
			if args, err = c.option(options, word, name, value, attached, args); err != nil {
				return nil, err
			}
		case len(word) > 1 && word[0] == '-':
			for i := 1; i < len(word); i++ {
				name, known := shortOptions()[word[i]]
				if !known {
					if strings.IndexByte("AEDCRSaedLlZ", word[i]) >= 0 {
						return nil, refused(2, "invalid option `-%c'", word[i])
					}
					return nil, refused(255, hint)
				}
				o := options[name]
				value := word[i+1:]
				if o.value == noValue || value == "" {
					if args, err = c.option(options, "-"+word[i:i+1], name, "", false, args); err != nil {
						return nil, err
					}
					continue
				}
				if args, err = c.option(options, "-"+word[i:i+1], name, value, true, args); err != nil {
					return nil, err
				}
				break
			}
		default:
			rest = append(rest, word)
		}
	}
	return rest, nil
}

func (c *commandLine) option(options map[string]option, word, name, value string, attached bool, args []string) ([]string, error) {
	o, known := options[name]
	switch {
	case !known:
		return nil, refused(255, hint)
	case attached && o.value == noValue:
		return nil, refused(255, "%s: option takes no value", word)
	case o.value == noValue || attached:
	case len(args) == 0 || o.value == mayHaveValue && strings.HasPrefix(args[0], "-"):
		if o.value == needsValue {
			return nil, refused(255, "%s: missing argument", word)
		}
	default:
		value, args = args[0], args[1:]
	}
	long := o.long
	if c.given[long] && (long == "service-address" || long == "real-server" || long == "forwarding-method") {
		return nil, refused(2, "multiple '%s' options specified", long)
	}
	c.given[long] = true
	return args, o.apply(c, value)
}

// check compares the options given with those that the command needs and
// accepts.
func (c *commandLine) check(rule commandRule) error {
	name := rule.long[0]
	for _, needed := range rule.needs {
		if !c.given[needed] {
			return refused(2, "You need to supply the '%s' option for the '%s' command", needed, name)
		}
	}
	for _, given := range sortedKeys(c.given) {
		if !slices.Contains(rule.needs, given) && !slices.Contains(rule.accepts, given) {
			return refused(2, "Illegal '%s' option with the '%s' command", given, name)
		}
	}
	l := c.List
	if l.Connections && (l.Stats || l.Rate || l.Thresholds || l.Persistent) {
		return refused(2, "options conflicts in the list command")
	}
	return nil
}

func sortedKeys(m map[string]bool) []string {
	var keys []string
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// options tells what each option does.
func (c *commandLine) options() map[string]option {
	service := func(proto packet.Proto) option {
		return option{"service-address", needsValue, func(c *commandLine, v string) error {
			addr, port, _, err := endpointOf(v, proto)
			if err != nil {
				return refused(2, "illegal virtual server address[:port] specified")
			}
			c.Named = true
			c.Service.ServiceKey = lvs.ServiceKey{Proto: proto, VIP: addr, Port: port}
			return nil
		}}
	}
	method := func(m lvs.Method) option {
		return option{"forwarding-method", noValue, func(c *commandLine, _ string) error { c.Server.Method = m; return nil }}
	}
	flag := func(name string, to *bool) option {
		return option{name, noValue, func(*commandLine, string) error { *to = true; return nil }}
	}
	text := func(name string, to *string) option {
		return option{name, needsValue, func(_ *commandLine, v string) error { *to = v; return nil }}
	}
	ignored := func(name string) option {
		return option{name, noValue, func(*commandLine, string) error { return nil }}
	}
	threshold := func(name, word string, to *uint32) option {
		return option{name, needsValue, func(_ *commandLine, v string) error {
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return refused(2, "illegal %s specified", word)
			}
			*to = uint32(n)
			return nil
		}}
	}
	c.Server.Method, c.Server.Weight = lvs.Route, 1
	c.scheduler = DefaultScheduler
	l := &c.List
	return map[string]option{
		"tcp-service": service(packet.TCP), "udp-service": service(packet.UDP), "sctp-service": service(packet.SCTP),
		"fwmark-service": {"service-address", needsValue, func(c *commandLine, v string) error {
			mark, err := strconv.ParseUint(v, 10, 32)
			if err != nil || mark == 0 {
				return refused(2, "invalid fwmark value `%s' specified", v)
			}
			c.Named = true
			c.Service.ServiceKey = lvs.ServiceKey{Mark: uint32(mark)}
			return nil
		}},
		"ipv6": flag("ipv6", &c.v6), "scheduler": text("scheduler", &c.scheduler),
		"persistent": {"persistent", mayHaveValue, func(c *commandLine, v string) error {
			c.Service.Persist = defaultPersist
			if v == "" {
				return nil
			}
			n, err := strconv.Atoi(v)
			if err != nil || n < 1 || n > int(lvs.MaxPersist/time.Second) {
				return refused(2, "invalid timeout value `%s' specified", v)
			}
			c.Service.Persist = time.Duration(n) * time.Second
			return nil
		}},
		"netmask": text("netmask", &c.mask), "pe": text("pe", new(string)), "ops": flag("ops", &c.Service.OnePacket),
		"sched-flags": text("sched-flags", &c.flags), "real-server": text("real-server", &c.server),
		"gatewaying": method(lvs.Route), "ipip": method(lvs.Tunnel), "masquerading": method(lvs.Masq),
		"weight": {"weight", needsValue, func(c *commandLine, v string) error {
			n, err := strconv.ParseUint(v, 10, 31)
			if err != nil {
				return refused(2, "illegal weight specified")
			}
			c.Server.Weight = int(n)
			return nil
		}},
		"u-threshold": threshold("u-threshold", "u_threshold", &c.Server.Upper),
		"l-threshold": threshold("l-threshold", "l_threshold", &c.Server.Lower),
		"tun-type":    text("tun-type", &c.tunType), "tun-port": text("tun-port", &c.tunPort),
		"tun-nocsum": ignored("tun-nocsum"), "tun-csum": ignored("tun-csum"), "tun-remcsum": ignored("tun-remcsum"),
		"connection": flag("connection", &l.Connections), "timeout": flag("timeout", &l.Timeout), "daemon": ignored("daemon"),
		"stats": flag("stats", &l.Stats), "rate": flag("rate", &l.Rate), "thresholds": flag("thresholds", &l.Thresholds),
		"persistent-conn": flag("persistent-conn", &l.Persistent), "sort": ignored("sort"), "nosort": flag("nosort", &l.NoSort),
		"numeric": flag("numeric", &c.Numeric), "exact": flag("exact", &l.Exact),
	}
}

// What ipvsadm takes where the command line says nothing.
const (
	DefaultScheduler = "wlc"
	defaultPersist   = 360 * time.Second // of -p without a value
)

// timeouts reads the values of --set.
func (c *commandLine) timeouts(values []string) (Command, error) {
	for i, v := range values {
		n, err := strconv.Atoi(v)
		if err != nil || n < 0 || n > maxTimeout {
			return Command{}, refused(2, "invalid timeout value `%s' specified", v)
		}
		c.Set[i] = time.Duration(n) * time.Second
	}
	return c.Command, nil
}

// maxTimeout is the largest number of seconds whose milliseconds an int
// holds.
const maxTimeout = (1<<31 - 1) / 1000

var errNoEndpoint = errors.New("no address or port")
