package control

import (
	"encoding/binary"
	"fmt"
	"strings"

	"pktdirector/packet"
)

// comments say what the director did with a packet. came: the packet as it came is in
// was; now is how it left.
func (r *PacketRecord) comments(came bool, was, now []byte) []string {
	var all []string
	add := func(format string, args ...any) { all = append(all, fmt.Sprintf(format, args...)) }
	if r.Decision != 0 {
		add("decision %d", r.Decision)
	}
	if r.Known {
		state := "state " + r.After
		if r.Before != r.After {
			state = "state " + r.Before + " -> " + r.After
		}
		add("service %s, server %s by %s, %s", ServiceID(r.Service), packet.Endpoint(r.Server.RIP, r.Server.Port), r.Method, state)
	}
	switch {
	case r.Out && r.Verdict == "tx_dropped":
		add("not sent: %s: %s", r.Verdict, r.Means)
	case r.Out && r.ID == 0:
		add("made by the director")
	case r.Out && !came:
		add("waited for the next hop's MAC address, or is a piece of a packet that came before")
	case r.Out:
		if text := rewritten(was, now); text != "" {
			add("rewritten: %s", text)
		}
	case r.Dropped:
		add("dropped: %s: %s", r.Verdict, r.Means)
	case r.Verdict == "":
		add("waits for the next hop's MAC address")
	default:
		add("%s: %s", r.Verdict, r.Means)
	}
	if r.GSOSize != 0 {
		add("a super-frame: on the wire it is cut into segments of %d bytes of payload", r.GSOSize)
	}
	return all
}

// ends are the headers that rewriting changes.
type ends struct {
	src, dst         packet.Addr
	proto            packet.Proto
	ttl              byte
	srcPort, dstPort uint16
	ports, there     bool
}

func readEnds(b []byte) (e ends) {
	const ip4, ip6 = 20, 40
	at := 0
	switch {
	case len(b) >= ip4 && b[0]>>4 == 4:
		e = ends{src: packet.AddrFrom4(b[12:]), dst: packet.AddrFrom4(b[16:]), proto: packet.Proto(b[9]), ttl: b[8], there: true}
		at = int(b[0]&15) * 4
		e.ports = binary.BigEndian.Uint16(b[6:])&0x1fff == 0
	case len(b) >= ip6 && b[0]>>4 == 6:
		e = ends{src: packet.AddrFrom16(b[8:]), dst: packet.AddrFrom16(b[24:]), proto: packet.Proto(b[6]), ttl: b[7], there: true}
		at, e.ports = ip6, true
	}
	e.ports = e.ports && len(b) >= at+4 && (e.proto == packet.TCP || e.proto == packet.UDP || e.proto == packet.SCTP)
	if e.ports {
		e.srcPort, e.dstPort = binary.BigEndian.Uint16(b[at:]), binary.BigEndian.Uint16(b[at+2:])
	}
	return e
}

// rewritten tells what is otherwise in the headers of a packet that left than when it
// came.
func rewritten(was, now []byte) string {
	a, b := readEnds(was), readEnds(now)
	if !a.there || !b.there {
		return ""
	}
	if a.proto != b.proto || a.src.Is4() != b.src.Is4() {
		return fmt.Sprintf("put into a tunnel (%s) from %s to %s", b.proto, b.src, b.dst)
	}
	var all []string
	end := func(addr packet.Addr, port uint16) string {
		if !a.ports || !b.ports {
			return addr.String()
		}
		return packet.Endpoint(addr, port)
	}
	if x, y := end(a.src, a.srcPort), end(b.src, b.srcPort); x != y {
		all = append(all, "source "+x+" -> "+y)
	}
	if x, y := end(a.dst, a.dstPort), end(b.dst, b.dstPort); x != y {
		all = append(all, "destination "+x+" -> "+y)
	}
	if a.ttl != b.ttl {
		name := "TTL"
		if !a.src.Is4() {
			name = "hop limit"
		}
		all = append(all, fmt.Sprintf("%s %d -> %d", name, a.ttl, b.ttl))
	}
	return strings.Join(all, ", ")
}
