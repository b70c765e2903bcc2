package filter

import (
	"errors"
	"fmt"

	"pktdirector/packet"
)

// Packet is what an expression is asked about.
type Packet struct {
	SrcMAC, DstMAC packet.MAC
	HasMAC         bool // whether there is an Ethernet header at all
	EtherType      packet.EtherType
	Tagged         bool   // the frame has an 802.1Q tag
	VLAN           uint16 // its id
	Outbound       bool   // it leaves the director
	Data           []byte // from the network layer on; may be cut
	Len            int    // bytes of the whole frame, link-layer header included

	found matcher // what Match found in it; here so that it needs no allocation
}

// Filter is an expression that was read. It may be used by several goroutines. The
// nil Filter chooses everything.
type Filter struct {
	text string
	root node
}

// Bounds of an expression.
const (
	maxText  = 4096 // bytes
	maxDepth = 64   // parentheses, and negations
)

// Parse reads an expression; an empty one chooses everything. Errors name the word
// that is wrong and its place.
func Parse(text string) (*Filter, error) {
	if len(text) > maxText {
		return nil, fmt.Errorf("filter: %d bytes long, at most %d can be", len(text), maxText)
	}
	p := &parser{lexer: lexer{text: text}}
	root, err := p.parse()
	if err != nil {
		return nil, fmt.Errorf("filter: %w", err)
	}
	if root == nil {
		return nil, nil
	}
	return &Filter{text: text, root: root}, nil
}

// String returns the expression; that of the nil Filter is empty.
func (f *Filter) String() string {
	if f == nil {
		return ""
	}
	return f.text
}

// Match reports whether the expression chooses a packet. It allocates nothing, and is
// for one goroutine a packet. An expression that asks for bytes behind the packet's end does not choose it, whatever
// else it says, as in libpcap.
func (f *Filter) Match(p *Packet) bool {
	if f == nil {
		return true
	}
	m := &p.found
	*m = matcher{p: p}
	m.layers()
	return f.root.match(m) && !m.failed
}

// wordError is an error at a word of the expression.
func wordError(w word, format string, args ...any) error {
	what := fmt.Sprintf(format, args...)
	if w.kind == wordEnd {
		return errors.New("at its end: " + what)
	}
	return fmt.Errorf("at byte %d, %q: %s", w.at+1, w.text, what)
}
