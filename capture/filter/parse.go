package filter

import "fmt"

// parser reads an expression by recursive descent:
//
//	expression = term { ("and" | "or") term }       and, or are alike: from left to right
//	term       = ["not"] ( "(" expression ")" | relation | primitive | id )
//	relation   = sum ("=" | "!=" | "<" ...) sum
//	primitive  = {qualifier} id, or a keyword such as "tcp" or "vlan"
//
// A bare id takes the qualifiers of the primitive before it: "port 80 or 443".
type parser struct {
	lexer
	word  word // the present one
	depth int
	last  qualifiers // of the latest primitive that had an id
	any   bool       // there was one
}

func (p *parser) advance() { p.word = p.next() }

func (p *parser) is(texts ...string) bool {
	for _, t := range texts {
		if p.word.kind != wordEnd && p.word.text == t {
			return true
		}
	}
	return false
}

// take reads a word if it is one of texts.
func (p *parser) take(texts ...string) bool {
	if !p.is(texts...) {
		return false
	}
	p.advance()
	return true
}

func (p *parser) wrong(format string, args ...any) error { return wordError(p.word, format, args...) }

// deeper counts a level of nesting; call shallower when it ends.
func (p *parser) deeper() error {
	if p.depth++; p.depth > maxDepth {
		return p.wrong("nested more than %d deep", maxDepth)
	}
	return nil
}

func (p *parser) shallower() { p.depth-- }

// parse reads the whole text; without a word in it the node is nil.
func (p *parser) parse() (node, error) {
	p.advance()
	if p.word.kind == wordEnd {
		return nil, nil
	}
	n, err := p.expression()
	if err != nil {
		return nil, err
	}
	if p.word.kind != wordEnd {
		return nil, p.wrong(`"and" or "or" may stand here, or the end`)
	}
	return n, nil
}

func (p *parser) expression() (node, error) {
	left, err := p.term()
	if err != nil {
		return nil, err
	}
	for {
		var join func(a, b node) node
		switch {
		case p.take("and", "&&"):
			join = func(a, b node) node { return both{a, b} }
		case p.take("or", "||"):
			join = func(a, b node) node { return either{a, b} }
		default:
			return left, nil
		}
		right, err := p.term()
		if err != nil {
			return nil, err
		}
		left = join(left, right)
	}
}

func (p *parser) term() (node, error) {
	if err := p.deeper(); err != nil {
		return nil, err
	}
	defer p.shallower()
	switch {
	case p.take("not", "!"):
		n, err := p.term()
		return negation{n}, err
	case p.is("("):
		return p.parenthesis()
	case p.startsSum():
		return p.relation(nil)
	}
	return p.primitive()
}

// parenthesis reads what begins with "(", which is an expression, or the left side
// of a relation.
func (p *parser) parenthesis() (node, error) {
	before := *p
	p.advance()
	n, err := p.expression()
	if err == nil && p.take(")") {
		return n, nil
	}
	if err == nil {
		err = p.wrong(`")" must stand here`)
	}
	failed := *p
	*p = before
	if left, sumErr := p.sum(0); sumErr == nil && p.isRelation() {
		return p.relation(left)
	}
	*p = failed
	return nil, err
}

// isRelation reports whether the present word compares two numbers.
func (p *parser) isRelation() bool { return p.is("=", "==", "!=", "<", "<=", ">", ">=") }

// relation reads a comparison, of which the left side may have been read.
func (p *parser) relation(left number) (node, error) {
	if left == nil {
		var err error
		if left, err = p.sum(0); err != nil {
			return nil, err
		}
	}
	if !p.isRelation() {
		return nil, p.wrong("a comparison must stand here: =, !=, <, <=, > or >=")
	}
	sign := p.word.text
	p.advance()
	right, err := p.sum(0)
	if err != nil {
		return nil, err
	}
	return comparison{left, right, sign}, nil
}

// node is a part of an expression that is true or false.
type node interface{ match(*matcher) bool }

type both struct{ a, b node }

func (n both) match(m *matcher) bool { return n.a.match(m) && n.b.match(m) }

type either struct{ a, b node }

func (n either) match(m *matcher) bool { return n.a.match(m) || !m.failed && n.b.match(m) }

type negation struct{ n node }

func (n negation) match(m *matcher) bool { return !n.n.match(m) && !m.failed }

// test is a node that a function answers.
type test func(*matcher) bool

func (t test) match(m *matcher) bool { return t(m) }

// unsupported are keywords of pcap-filter(7) that are not taken, and why.
func unsupported(name string) string {
	why := map[string]string{
		"gateway": "names are not looked up", "protochain": "headers are not followed in a chain: name the protocol",
		"rarp": "not a protocol the director reads", "decnet": "not a protocol the director reads", "atalk": "not a protocol the director reads",
		"mpls": "labels are not read", "pppoed": "not read", "pppoes": "not read", "geneve": "not read", "wlan": "not an Ethernet link",
		"type": "not an Ethernet link", "subtype": "not an Ethernet link", "fddi": "not an Ethernet link", "tr": "not an Ethernet link",
		"ifname": "pf's only", "on": "pf's only", "rnr": "pf's only", "rulenum": "pf's only", "reason": "pf's only", "rset": "pf's only",
		"ruleset": "pf's only", "srnr": "pf's only", "subrulenum": "pf's only", "action": "pf's only", "llc": "LLC is not read", "iso": "LLC is not read",
		"stp": "LLC is not read", "ipx": "LLC is not read", "netbeui": "LLC is not read", "link": "write ether", "ppp": "not an Ethernet link", "slip": "not an Ethernet link",
		"lat": "not a protocol the director reads", "moprc": "not a protocol the director reads", "mopdl": "not a protocol the director reads", "aarp": "not a protocol the director reads",
	}[name]
	if why == "" {
		return ""
	}
	return fmt.Sprintf("not taken here: %s", why)
}
