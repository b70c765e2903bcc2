package packet

import "encoding/binary"

// IPv4 options (RFC 791 section 3.1, RFC 2113).
const (
	optRecordRoute = 7
	optTimestamp   = 68
	optLooseRoute  = 131
	optStrictRoute = 137
	optRouterAlert = 148

	optCopied = 0x80 // the option belongs into every fragment

	// The smallest pointers: behind the fixed part.
	minRoutePointer = 4
	minStampPointer = 5

	// Flags of the timestamp option.
	stampOnly         = 0
	stampAddresses    = 1
	stampPrespecified = 3

	// nonStandardTime marks a timestamp that does not count from midnight UT
	// (RFC 791, "Internet Timestamp").
	nonStandardTime = 1 << 31
)

// Options of a single byte, the same in IPv4 and TCP (RFC 9293 section 3.2).
const (
	optionEnd = 0
	optionNop = 1
)

// CutOption splits the first option off options, which IPv4 and TCP write alike
// (RFC 791 section 3.1, RFC 9293 section 3.2): a kind and, but for the end of
// options, 0, and the no-operation, 1, the length of both and what follows. It
// reports false where options end or cannot be read further. option is part of
// options and has at least a byte.
func CutOption(options []byte) (option, rest []byte, ok bool) {
	if len(options) == 0 || options[0] == optionEnd {
		return nil, nil, false
	}
	n := 1
	if options[0] != optionNop {
		if len(options) < 2 || options[1] < 2 || int(options[1]) > len(options) {
			return nil, nil, false
		}
		n = int(options[1])
	}
	return options[:n], options[n:], true
}

// OptionFault tells what is wrong with the options of an IPv4 header.
type OptionFault uint8

// Faults of options.
const (
	OptionsOK    OptionFault = iota
	OptionBroken             // a length or pointer is wrong: the sender is told where
	OptionRoute              // a source route, which is never followed
)

// HasOptions reports whether p, a parsed packet, is IPv4 with options.
func (p *Packet) HasOptions() bool {
	return p.EtherType == EtherIPv4 && p.L4-p.L3 > IPv4HeaderLen
}

// CheckOptions judges the IPv4 options of a parsed packet as the kernel's
// ip_options_compile does. at is where in the header a broken one is wrong,
// which an ICMP parameter problem tells.
func CheckOptions(p *Packet) (fault OptionFault, at byte) {
	if !p.HasOptions() {
		return OptionsOK, 0
	}
	h := p.Buf[p.L3:p.L4]
	var seen [2]bool // record route, timestamp: each once
	rest := h[IPv4HeaderLen:]
	for {
		start := len(h) - len(rest)
		opt, behind, ok := CutOption(rest)
		if !ok {
			if len(rest) > 0 && rest[0] != optionEnd {
				return OptionBroken, byte(start)
			}
			return OptionsOK, 0
		}
		wrong := -1
		switch opt[0] {
		case optLooseRoute, optStrictRoute:
			return OptionRoute, 0
		case optRecordRoute:
			wrong = checkRoute(opt, &seen[0])
		case optTimestamp:
			wrong = checkStamp(opt, &seen[1])
		case optRouterAlert:
			if len(opt) < 4 {
				wrong = 1
			}
		}
		if wrong >= 0 {
			return OptionBroken, byte(start + wrong)
		}
		rest = behind
	}
}

// checkRoute returns where in a record route option a fault is, or -1.
func checkRoute(opt []byte, seen *bool) int {
	switch {
	case *seen:
		return 0
	case len(opt) < 3:
		return 1
	case opt[2] < minRoutePointer, int(opt[2]) <= len(opt) && int(opt[2])+3 > len(opt):
		return 2
	}
	*seen = true
	return -1
}

// checkStamp returns where in a timestamp option a fault is, or -1.
func checkStamp(opt []byte, seen *bool) int {
	switch {
	case *seen:
		return 0
	case len(opt) < 4:
		return 1
	case opt[2] < minStampPointer:
		return 2
	}
	*seen = true
	if int(opt[2]) <= len(opt) {
		if int(opt[2])-1+stampSize(opt) > len(opt) {
			return 2
		}
		return -1
	}
	if opt[3]>>4 == 15 { // no more machines without room can be counted
		return 3
	}
	return -1
}

// stampSize is how many bytes one machine's entry takes.
func stampSize(opt []byte) int {
	if opt[3]&15 == stampOnly {
		return 4
	}
	return 8
}

// RecordOptions fills in what the options of a parsed IPv4 packet ask each
// machine on the way for: route into a record route, stamp and the milliseconds
// now into a timestamp option. The options must have passed CheckOptions.
// Timestamps carry the bit that says they do not count from midnight.
func RecordOptions(p *Packet, route, stamp Addr, now uint32) {
	if !p.HasOptions() {
		return
	}
	h := p.Buf[p.L3:p.L4]
	for opt, rest, ok := CutOption(h[IPv4HeaderLen:]); ok; opt, rest, ok = CutOption(rest) {
		switch {
		case opt[0] == optRecordRoute && len(opt) >= 3 && opt[2] >= minRoutePointer && int(opt[2])+3 <= len(opt) && route.Is4():
			route.Put4(opt[opt[2]-1:])
			opt[2] += 4
		case opt[0] == optTimestamp && len(opt) >= 4 && opt[2] >= minStampPointer:
			recordStamp(opt, stamp, now)
		}
	}
	PutIPv4Checksum(h)
}

func recordStamp(opt []byte, addr Addr, now uint32) {
	at := int(opt[2]) - 1
	size := stampSize(opt)
	if at+size > len(opt) {
		if opt[3] < 15<<4 {
			opt[3] += 1 << 4
		}
		return
	}
	switch opt[3] & 15 {
	case stampOnly:
	case stampAddresses:
		if !addr.Is4() {
			return
		}
		addr.Put4(opt[at:])
	case stampPrespecified:
		if AddrFrom4(opt[at:]) != addr {
			return
		}
	default:
		return
	}
	binary.BigEndian.PutUint32(opt[at+size-4:], now|nonStandardTime)
	opt[2] += uint8(size)
}

// blankOptions turns the options that belong into the first fragment only into
// no-operations, as the kernel's ip_options_fragment does: the header keeps its
// length.
func blankOptions(options []byte) {
	for opt, rest, ok := CutOption(options); ok; opt, rest, ok = CutOption(rest) {
		if opt[0]&optCopied == 0 {
			for i := range opt {
				opt[i] = optionNop
			}
		}
	}
}
