package control

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pktdirector/lvs"
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
	// timeouts is 's', version and help are 'v' and 'h', starting and stopping
	// the sync daemon '+' and '-'.
	Op      byte
	Service lvs.VirtualService // of A and E; its key of the others
	Named   bool               // a service was named
	Server  lvs.RealServer     // of a and e; its key of d
	List    ListOptions
	Set     [3]time.Duration // tcp, tcpfin, udp; 0 keeps
	Numeric bool
	Daemon  DaemonOptions // of '+' and '-'

	given map[string]bool // options, by the names that ipvsadm's messages have
}

// ListOptions choose what -L shows.
type ListOptions struct {
	Connections, Stats, Rate, Thresholds, Persistent, TunInfo, Timeout, Daemon, NoSort, Exact bool
}

// commandLine collects the options as they come.
type commandLine struct {
	Command
	scheduler string
	flags     string
	mask      string
	hasPort   bool // of the server
	names     *Names
}

// commandRule is a command: its letter, its long option, its name in messages,
// and which options it needs and accepts.
type commandRule struct {
	op      byte
	long    string
	name    string
	needs   []string
	accepts []string
}

func commandRules() []commandRule {
	service := []string{"scheduler", "persistent", "netmask", "pe", "ops", "sched-flags"}
	server := append([]string{"forwarding-method", "weight", "u-threshold", "l-threshold"}, tunnelOptions()...)
	toService, toServer := []string{"service-address"}, []string{"service-address", "real-server"}
	return []commandRule{
		{'A', "add-service", "add-service", toService, service},
		{'E', "edit-service", "edit-service", toService, service},
		{'D', "delete-service", "delete-service", toService, nil},
		{'C', "clear", "flush", nil, nil},
		{'R', "restore", "restore", nil, nil},
		{'S', "save", "save", nil, []string{"numeric"}},
		{'a', "add-server", "add-server", toServer, server},
		{'e', "edit-server", "edit-server", toServer, server},
		{'d', "delete-server", "delete-server", toServer, nil},
		{'v', "version", "version", nil, nil},
		{'h', "help", "help", nil, nil},
		{'+', "start-daemon", "start-daemon", nil, daemonOptions()},
		{'-', "stop-daemon", "stop-daemon", nil, []string{"syncid"}},
		{'L', "list", "list", nil, []string{"service-address", "numeric", "connection", "timeout", "daemon", "stats", "rate", "thresholds",
			"persistent-conn", "tun-info", "nosort", "exact", "syncid"}},
		{'Z', "zero", "zero", nil, toService},
		{'s', "set", "set", nil, nil},
	}
}

// ParseCommand reads an ipvsadm command line, without the program's name, as
// ipvsadm does: options one by one, each with its value, and what makes sense only
// together in the end. Its errors are *CommandError.
func ParseCommand(args []string, names *Names) (Command, error) {
	c := &commandLine{names: names, scheduler: DefaultScheduler}
	c.given = map[string]bool{}
	c.Server.Method, c.Server.Weight = lvs.Route, 1
	rule, w, err := c.command(args)
	if err != nil || rule.op == 'h' || rule.op == 'v' {
		return c.Command, err
	}
	rest, err := c.read(w)
	if err != nil {
		return Command{}, err
	}
	if rule.op == 's' {
		if rest, err = c.timeouts(rest); err != nil {
			return Command{}, err
		}
	}
	if len(rest) > 0 {
		return Command{}, refused(2, "unexpected argument %s", rest[0])
	}
	if err := c.setFlags(); err != nil {
		return Command{}, err
	}
	if err := c.check(rule); err != nil {
		return Command{}, err
	}
	return c.Command, c.finish()
}

// words are what is left to read of a command line: words, and letters of an
// option word before them.
type words struct {
	word    string // that the letters are of
	letters string
	args    []string
}

// next returns the next word.
func (w *words) next() string {
	word := w.args[0]
	w.args = w.args[1:]
	return word
}

// command reads the first option, which must name the command.
func (c *commandLine) command(args []string) (commandRule, *words, error) {
	if len(args) == 0 {
		args = []string{"-L"}
	}
	word := args[0]
	w := &words{word: word, args: args[1:]}
	if long, value, attached := strings.Cut(strings.TrimPrefix(word, "--"), "="); strings.HasPrefix(word, "--") {
		for _, rule := range commandRules() {
			daemon := rule.op == '+' || rule.op == '-'
			if rule.long != long || attached && !daemon {
				continue
			}
			c.Op = rule.op
			if !daemon {
				return rule, w, nil
			}
			if !attached {
				if len(w.args) == 0 {
					return rule, w, refused(255, hint)
				}
				value = w.next()
			}
			return rule, w, c.daemonState(value)
		}
		return commandRule{}, w, refused(255, hint)
	}
	if len(word) > 1 && word[0] == '-' {
		if rule, known := shortCommand(word[1]); known {
			c.Op, w.letters = rule.op, word[2:]
			return rule, w, nil
		}
	}
	return commandRule{}, w, refused(255, hint)
}

// shortCommand returns the command of a letter.
func shortCommand(letter byte) (commandRule, bool) {
	if letter == 'l' {
		letter = 'L'
	}
	if strings.IndexByte("s+-", letter) < 0 {
		for _, rule := range commandRules() {
			if rule.op == letter {
				return rule, true
			}
		}
	}
	return commandRule{}, false
}

// read applies the options; it returns the words that are none.
func (c *commandLine) read(w *words) (rest []string, err error) {
	long, short := c.options()
	for w.letters != "" || len(w.args) > 0 {
		if w.letters != "" {
			if err := c.letter(w, short); err != nil {
				return nil, err
			}
			continue
		}
		w.word = w.next()
		switch {
		case w.word == "--":
			return append(rest, w.args...), nil
		case strings.HasPrefix(w.word, "--"):
			if err := c.long(w, long); err != nil {
				return nil, err
			}
		case len(w.word) > 1 && w.word[0] == '-':
			w.letters = w.word[1:]
		default:
			rest = append(rest, w.word)
		}
	}
	return rest, nil
}

// letter applies the option of the next letter; the letters behind it may be its
// value.
func (c *commandLine) letter(w *words, options map[byte]option) error {
	letter := w.letters[0]
	w.letters = w.letters[1:]
	if _, command := shortCommand(letter); command {
		return refused(2, "invalid option `%s'", w.word)
	}
	o, known := options[letter]
	if !known {
		return refused(255, "%s: unknown option", w.word)
	}
	if o.value == noValue || w.letters == "" {
		return c.option(w, o, "", false)
	}
	value := strings.TrimPrefix(w.letters, "=")
	w.letters = ""
	return c.option(w, o, value, true)
}

// long applies an option word: --name or --name=value.
func (c *commandLine) long(w *words, options map[string]option) error {
	name, value, attached := strings.Cut(w.word[2:], "=")
	if slices.ContainsFunc(commandRules(), func(r commandRule) bool { return r.long == name }) {
		return refused(2, "invalid option `%s'", w.word)
	}
	o, known := options[name]
	switch {
	case !known:
		return refused(255, "%s: unknown option", w.word)
	case attached && o.value == noValue:
		return refused(255, "%s: option does not take an argument", w.word)
	}
	return c.option(w, o, value, attached)
}

// option applies one option, whose value may be the next word.
func (c *commandLine) option(w *words, o option, value string, given bool) error {
	switch {
	case o.value == noValue || given:
	case len(w.args) > 0 && (o.value == needsValue || !strings.HasPrefix(w.args[0], "-")):
		value, given = w.next(), true
	case o.value == needsValue:
		return refused(255, "%s: missing argument", w.word)
	}
	if o.name != "" {
		if c.given[o.name] {
			return refused(2, "multiple '%s' options specified", o.name)
		}
		c.given[o.name] = true
	}
	if o.apply == nil {
		return nil
	}
	return o.apply(value, given)
}

// check holds the options given against those that the command needs and
// accepts, in ipvsadm's own order, and those of -L against each other.
func (c *commandLine) check(rule commandRule) error {
	conflicts := map[string][]string{"service-address": {"connection"}, "timeout": {"connection", "service-address"}, "daemon": {"connection", "service-address", "timeout"}}
	for _, name := range optionOrder() {
		switch {
		case c.given[name] && !slices.Contains(rule.needs, name) && !slices.Contains(rule.accepts, name):
			return refused(2, "Illegal '%s' option with the '%s' command", name, rule.name)
		case !c.given[name] && slices.Contains(rule.needs, name):
			return refused(2, "You need to supply the '%s' option for the '%s' command", name, rule.name)
		}
		for _, other := range conflicts[name] {
			if rule.op == 'L' && c.given[name] && c.given[other] {
				return refused(2, "The option '%s' conflicts with the '%s' option in the 'list' command", name, other)
			}
		}
	}
	l := c.List
	if rule.op != 'L' {
		return nil
	}
	if (l.Connections || l.Timeout || l.Daemon) && (l.Stats || l.Rate || l.Thresholds) || (l.Timeout || l.Daemon) && l.Persistent {
		return refused(2, "options conflicts in the list command")
	}
	return nil
}

// What ipvsadm takes where the command line says nothing.
const (
	DefaultScheduler = "wlc"
	defaultPersist   = 360 * time.Second // of -p without a value
)

// timeouts reads the values of --set and returns the words that follow.
func (c *commandLine) timeouts(values []string) ([]string, error) {
	if len(values) < len(c.Set) {
		return nil, refused(2, "--set option requires 3 timeout values")
	}
	for i := range c.Set {
		n, ok := integer(values[i], 0, int64(lvs.MaxPersist/time.Second))
		if !ok {
			return nil, refused(2, "invalid timeout value `%s' specified", values[i])
		}
		c.Set[i] = time.Duration(n) * time.Second
	}
	return values[len(c.Set):], nil
}

var errNoEndpoint = errors.New("no address or port")
