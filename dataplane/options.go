package dataplane

import (
	"time"

	"pktdirector/conntrack"
	"pktdirector/packet"
)

// options judges the IPv4 options of a packet to one of the director's own
// addresses, and fills in what they ask for: the VIP.
func (w *Worker) options(p *packet.Packet) Verdict {
	if !p.HasOptions() || !w.d.serves(p.Flow.Dst) {
		return pending
	}
	if v := w.faultyOptions(p, p.Flow.Dst); v != pending {
		return v
	}
	packet.RecordOptions(p, p.Flow.Dst, p.Flow.Dst, w.milliseconds())
	return pending
}

// replyOptions does the same for a real server's reply: the route goes on from
// the VIP, while the timestamp is of the director's address towards the server.
func (w *Worker) replyOptions(p *packet.Packet, c *conntrack.Conn) Verdict {
	if !p.HasOptions() {
		return pending
	}
	own := w.speaker(p, c, conntrack.Reply)
	if v := w.faultyOptions(p, own); v != pending {
		return v
	}
	packet.RecordOptions(p, c.Virtual, own, w.milliseconds())
	return pending
}

func (w *Worker) faultyOptions(p *packet.Packet, own packet.Addr) Verdict {
	switch fault, at := packet.CheckOptions(p); fault {
	case packet.OptionRoute:
		return SourceRoute
	case packet.OptionBroken:
		w.icmpError(p, own, p.Flow.Src, icmpParameter, 0, 0, 0, uint32(at)<<24)
		return BadOptions
	}
	return pending
}

func (w *Worker) milliseconds() uint32 { return uint32(w.now / time.Millisecond) }

// icmpParameter is the type of "parameter problem" (RFC 792).
const icmpParameter = 12
