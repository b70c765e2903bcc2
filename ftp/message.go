package ftp

import (
	"bytes"
	"net/netip"
	"strconv"

	"pktdirector/packet"
)

// Kind is what a line of a control connection is about.
type Kind uint8

// The ways to agree on a data connection.
const (
	Other Kind = iota // anything else
	PASV              // command PASV, or its answer 227 (RFC 959 section 4.1.2)
	EPSV              // command EPSV, or its answer 229 (RFC 2428 section 3)
	PORT              // the client waits at an address (RFC 959 section 4.1.2)
	EPRT              // the same for both IP versions (RFC 2428 section 2)
)

// Message is what one line says of a data connection.
type Message struct {
	Kind Kind
	Addr packet.Addr // as announced; zero: none
	Port uint16      // as announced; 0: none
	// Start and End are where the announced IPv4 address stands in the line
	// of an answer 227: four numbers with commas.
	Start, End int
}

// MaxLine is the length of the longest line that is looked at. Answers that
// announce a data connection are shorter than a terminal's line.
const MaxLine = 128

// ParseCommand reads a client's line, without its end. A command with
// arguments that do not hold is Other.
func ParseCommand(line []byte) Message {
	line = trimEnd(line)
	if len(line) < 4 || len(line) > MaxLine {
		return Message{}
	}
	verb, args := line[:4], line[4:]
	if len(args) > 0 && args[0] != ' ' {
		return Message{}
	}
	args = bytes.TrimLeft(args, " ")
	switch {
	case bytes.EqualFold(verb, []byte("PASV")):
		return Message{Kind: PASV}
	case bytes.EqualFold(verb, []byte("EPSV")):
		return Message{Kind: EPSV}
	case bytes.EqualFold(verb, []byte("PORT")):
		m := Message{Kind: PORT}
		_, end, ok := m.sixNumbers(args)
		if ok && end == len(args) {
			return m
		}
	case bytes.EqualFold(verb, []byte("EPRT")):
		return extendedPort(args)
	}
	return Message{}
}

// ParseReply reads a server's line, without its end. Only the whole answers 227
// and 229 announce something; the first line of a longer answer ("227-") does
// not.
func ParseReply(line []byte) Message {
	line = trimEnd(line)
	if len(line) < 4 || len(line) > MaxLine || line[3] != ' ' {
		return Message{}
	}
	switch {
	case string(line[:3]) == "227":
		return passive(line)
	case string(line[:3]) == "229":
		return extendedPassive(line)
	}
	return Message{}
}

func trimEnd(line []byte) []byte { return bytes.TrimRight(line, "\r\n ") }

// passive finds the first six numbers after the code. The text around them,
// brackets included, is the server's own affair (RFC 1123 section 4.1.2.6).
func passive(line []byte) Message {
	m := Message{Kind: PASV}
	for i := 4; i < len(line); i++ {
		if !digit(line[i]) || digit(line[i-1]) || line[i-1] == ',' {
			continue
		}
		if addrEnd, end, ok := m.sixNumbers(line[i:]); ok && (i+end == len(line) || line[i+end] != ',') {
			m.Start, m.End = i, i+addrEnd
			return m
		}
	}
	return Message{}
}

// sixNumbers reads h1,h2,h3,h4,p1,p2 from the beginning of b and returns where
// the address and the whole end.
func (m *Message) sixNumbers(b []byte) (addrEnd, end int, ok bool) {
	var n [6]byte
	for i := range n {
		if i > 0 {
			if end >= len(b) || b[end] != ',' {
				return 0, 0, false
			}
			end++
		}
		first, value := end, 0
		for end < len(b) && digit(b[end]) && end-first < 3 {
			value = value*10 + int(b[end]-'0')
			end++
		}
		if end == first || value > 255 || end < len(b) && digit(b[end]) {
			return 0, 0, false
		}
		n[i] = byte(value)
		if i == 3 {
			addrEnd = end
		}
	}
	m.Addr = packet.AddrFrom4(n[:4])
	m.Port = uint16(n[4])<<8 | uint16(n[5])
	return addrEnd, end, m.Port != 0
}

// extendedPassive reads "229 text (|||port|)"; any printable character may
// stand for the bar, and nothing stands between the first three.
func extendedPassive(line []byte) Message {
	open := bytes.LastIndexByte(line, '(')
	if open < 0 {
		return Message{}
	}
	b := line[open+1:]
	if len(b) < 6 || !printable(b[0]) || b[1] != b[0] || b[2] != b[0] {
		return Message{}
	}
	digits, rest, found := bytes.Cut(b[3:], b[:1])
	port, ok := portOf(digits)
	if !found || !ok || len(rest) == 0 || rest[0] != ')' {
		return Message{}
	}
	return Message{Kind: EPSV, Port: port}
}

// extendedPort reads "|1|198.51.100.7|50000|" or "|2|2001:db8::7|50000|".
func extendedPort(args []byte) Message {
	if len(args) < 2 || !printable(args[0]) {
		return Message{}
	}
	parts := bytes.Split(args[1:], args[:1])
	if len(parts) != 4 || len(parts[3]) != 0 {
		return Message{}
	}
	a, err := netip.ParseAddr(string(parts[1]))
	port, ok := portOf(parts[2])
	family := string(parts[0])
	if err != nil || !ok || a.Zone() != "" || a.Is4In6() || a.Is4() != (family == "1") || a.Is6() != (family == "2") {
		return Message{}
	}
	return Message{Kind: EPRT, Addr: packet.AddrFrom(a), Port: port}
}

// AppendAddr appends an IPv4 address as answers 227 write it: four numbers with
// commas.
func AppendAddr(b []byte, a packet.Addr) []byte {
	v := a.V4()
	for shift := 24; shift >= 0; shift -= 8 {
		if shift < 24 {
			b = append(b, ',')
		}
		b = strconv.AppendUint(b, uint64(v>>shift&0xff), 10)
	}
	return b
}

func portOf(b []byte) (uint16, bool) {
	if len(b) == 0 || len(b) > 5 {
		return 0, false
	}
	n := 0
	for _, c := range b {
		if !digit(c) {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return uint16(n), n > 0 && n <= 65535
}

func digit(c byte) bool { return c >= '0' && c <= '9' }

// printable is what RFC 2428 allows for a delimiter; a digit would be part of
// the numbers.
func printable(c byte) bool { return c > 32 && c < 127 && !digit(c) }
