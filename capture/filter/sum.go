package filter

import (
	"strconv"
	"strings"

	"pktdirector/packet"
)

// number is a part of an expression that has a value: 32 bits without sign.
type number interface{ value(*matcher) uint32 }

type constant uint32

func (c constant) value(*matcher) uint32 { return uint32(c) }

type frameLength struct{}

func (frameLength) value(m *matcher) uint32 { return uint32(m.p.Len) }

// operation is two numbers and what is done with them.
type operation struct {
	a, b number
	sign string
}

func (o operation) value(m *matcher) uint32 {
	a := o.a.value(m)
	b := o.b.value(m)
	switch o.sign {
	case "+":
		return a + b
	case "-":
		return a - b
	case "*":
		return a * b
	case "&":
		return a & b
	case "|":
		return a | b
	case "^":
		return a ^ b
	case "<<":
		return a << b
	case ">>":
		return a >> b
	}
	if b == 0 {
		m.failed = true
		return 0
	}
	if o.sign == "%" {
		return a % b
	}
	return a / b
}

// load is size bytes of a header.
type load struct {
	layer layer
	at    number
	size  uint32
}

func (l load) value(m *matcher) uint32 {
	b, there := m.header(l.layer)
	at := uint64(l.at.value(m))
	if !there || at+uint64(l.size) > uint64(len(b)) {
		m.failed = true
		return 0
	}
	v := uint32(0)
	for _, c := range b[at : at+uint64(l.size)] {
		v = v<<8 | uint32(c)
	}
	return v
}

// comparison is a relation of two numbers. A header that the packet does not have
// makes it false; see guards.
type comparison struct {
	a, b number
	sign string
}

func (c comparison) match(m *matcher) bool {
	if !guards(c.a, m) || !guards(c.b, m) {
		return false
	}
	a, b := c.a.value(m), c.b.value(m)
	if m.failed {
		return false
	}
	switch c.sign {
	case "!=":
		return a != b
	case "<":
		return a < b
	case "<=":
		return a <= b
	case ">":
		return a > b
	case ">=":
		return a >= b
	}
	return a == b
}

// guards reports whether the packet has the headers that a number is made of. Without
// one of them a relation is false, and its negation true.
func guards(n number, m *matcher) bool {
	switch n := n.(type) {
	case operation:
		return guards(n.a, m) && guards(n.b, m)
	case load:
		return m.has(n.layer) && guards(n.at, m)
	}
	return true
}

// strength of a sign between numbers, as in C; 0 for others.
func strength(sign string) int {
	switch sign {
	case "|":
		return 1
	case "^":
		return 2
	case "&":
		return 3
	case "<<", ">>":
		return 4
	case "+", "-":
		return 5
	case "*", "/", "%":
		return 6
	}
	return 0
}

// startsSum reports whether the present word begins a number rather than a
// primitive.
func (p *parser) startsSum() bool {
	switch p.word.kind {
	case wordSign:
		return p.word.text == "-"
	case wordNumber:
		if _, err := parseNumber(p.word.text); err != nil {
			return false // an address
		}
		ahead := *p
		ahead.advance()
		return ahead.isRelation() || ahead.word.kind == wordSign && strength(ahead.word.text) > 0
	case wordName:
		if p.word.text == "len" || constants()[p.word.text] != nil {
			return true
		}
		ahead := *p
		ahead.advance()
		return ahead.is("[")
	}
	return false
}

// sum reads numbers joined by signs that bind more than weaker.
func (p *parser) sum(weaker int) (number, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	left, err := p.operand()
	for err == nil {
		sign := p.word.text
		s := strength(sign)
		if p.word.kind != wordSign || s <= weaker {
			return left, nil
		}
		p.advance()
		at := p.word
		var right number
		if right, err = p.sum(s); err != nil {
			return nil, err
		}
		if c, is := right.(constant); is && c == 0 && (sign == "/" || sign == "%") {
			return nil, wordError(at, "division by zero")
		}
		if c, is := right.(constant); is && c > 31 && s == strength("<<") {
			return nil, wordError(at, "a shift by more than 31 bits")
		}
		left = operation{left, right, sign}
	}
	return nil, err
}

func (p *parser) operand() (number, error) {
	w := p.word
	switch {
	case p.take("("):
		n, err := p.sum(0)
		if err == nil && !p.take(")") {
			err = p.wrong(`")" must stand here`)
		}
		return n, err
	case p.take("-"):
		if err := p.deeper(); err != nil {
			return nil, err
		}
		defer p.shallower()
		n, err := p.operand()
		return operation{constant(0), n, "-"}, err
	case p.take("len"):
		return frameLength{}, nil
	case w.kind == wordNumber:
		n, err := parseNumber(w.text)
		if err != nil {
			return nil, p.wrong("no number of 32 bits")
		}
		p.advance()
		return constant(n), nil
	case w.kind == wordName:
		if c := constants()[w.text]; c != nil {
			p.advance()
			return constant(*c), nil
		}
		return p.load()
	}
	return nil, p.wrong("a number must stand here")
}

// load reads "tcp[13]", "ip[2:2]".
func (p *parser) load() (number, error) {
	l, known := layerNames()[p.word.text]
	if !known {
		return nil, p.wrong("no header of that name: ether, ip, ip6, arp, tcp, udp, sctp, icmp, icmp6, igmp")
	}
	p.advance()
	if !p.take("[") {
		return nil, p.wrong(`"[" must stand here`)
	}
	at, err := p.sum(0)
	if err != nil {
		return nil, err
	}
	size := uint64(1)
	if p.take(":") {
		var wrong error
		if size, wrong = parseNumber(p.word.text); wrong != nil || size != 1 && size != 2 && size != 4 {
			return nil, p.wrong("1, 2 or 4 bytes can be read")
		}
		p.advance()
	}
	if !p.take("]") {
		return nil, p.wrong(`"]" must stand here`)
	}
	return load{l, at, uint32(size)}, nil
}

// parseNumber reads a number as C writes it.
func parseNumber(s string) (uint64, error) {
	if strings.ContainsAny(s, "_") {
		return 0, strconv.ErrSyntax
	}
	return strconv.ParseUint(s, 0, 32)
}

// constants of pcap-filter(7): offsets in headers and values there.
func constants() map[string]*uint32 {
	all := map[string]*uint32{}
	add := func(n uint32, names ...string) {
		for _, name := range names {
			all[name] = &n
		}
	}
	add(0, "icmptype", "icmp6type", "icmp-echoreply")
	add(1, "icmpcode", "icmp6code")
	add(13, "tcpflags", "icmp-tstamp")
	for name, bit := range map[string]uint8{"fin": packet.FIN, "syn": packet.SYN, "rst": packet.RST, "push": packet.PSH, "ack": packet.ACK, "urg": packet.URG, "ece": packet.ECE, "cwr": packet.CWR} {
		add(uint32(bit), "tcp-"+name)
	}
	for name, n := range map[string]uint32{
		"icmp-unreach": 3, "icmp-sourcequench": 4, "icmp-redirect": 5, "icmp-echo": 8, "icmp-routeradvert": 9, "icmp-routersolicit": 10, "icmp-timxceed": 11,
		"icmp-paramprob": 12, "icmp-tstampreply": 14, "icmp-ireq": 15, "icmp-ireqreply": 16, "icmp-maskreq": 17, "icmp-maskreply": 18,
		"icmp6-destinationunreach": 1, "icmp6-packettoobig": 2, "icmp6-timeexceeded": 3, "icmp6-parameterproblem": 4, "icmp6-echo": 128, "icmp6-echoreply": 129,
		"icmp6-multicastlistenerquery": 130, "icmp6-multicastlistenerreportv1": 131, "icmp6-multicastlistenerdone": 132, "icmp6-routersolicit": 133,
		"icmp6-routeradvert": 134, "icmp6-neighborsolicit": 135, "icmp6-neighboradvert": 136, "icmp6-redirect": 137,
	} {
		add(n, name)
	}
	return all
}
