package conntrack

import (
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// Direction tells which way a packet goes, seen from the client.
type Direction uint8

// The two directions of a connection.
const (
	Request Direction = iota // client to VIP
	Reply                    // real server to client
)

// Flags of a Conn.
const (
	// flagActive: the connection stands in its destination's ActiveConn.
	flagActive uint8 = 1 << iota
	// NoOutput: replies do not pass the director (DR and TUN), so states
	// follow the input-only table.
	NoOutput
	// Template: the entry binds a client, or a net of clients, to its
	// destination for new connections. Its client port is 0.
	Template
	// used: the entry is not on the free list.
	used
	// NoClientPort: the connection is expected from the client, from a port
	// that is not known yet. Its client port is 0.
	NoClientPort
	// Local: the real server is the director's own host.
	Local
)

// Conn binds a client's connection to its destination. It holds no pointers.
// A *Conn is valid while its shard is locked; copy it to keep it.
type Conn struct {
	Client, Virtual, Dest             packet.Addr
	ClientPort, VirtualPort, DestPort uint16
	Proto                             packet.Proto
	Method                            lvs.Method
	Tunnel                            lvs.TunnelInfo // of the tunnelling method; follows the destination's
	State                             State
	Flags                             uint8
	DestID                            uint32 // lvs.Destination.ID

	Packets uint32 // requests so far

	// Control is the template the connection was made through, which must
	// not end before it. Zero: none.
	Control TemplateRef

	// Parent names, for its owner, the connection that announced this one;
	// it must not end first. 0: none.
	Parent uint32

	// Lifetime is, of a template, how many ticks it lives after a connection
	// was made through it.
	Lifetime uint32

	controls   uint32 // of a template: connections made through it
	self       uint32 // own handle in the shard
	prev, next uint32 // neighbours in the timer wheel's slot, or, as next, in its page's free list
	slot       uint16 // wheel level and slot
	rank       rank   // the line of the shard that the entry stands in
	before     uint32 // neighbours in that line
	behind     uint32
	expires    uint64 // tick at which the entry ends
}

// TemplateRef names a template in the table of templates. It stays valid while
// a connection holds it.
type TemplateRef struct{ shard, handle uint32 }

// IsZero reports whether r names no template.
func (r TemplateRef) IsZero() bool { return r.handle == 0 }

// Active reports whether the connection counts as ActiveConn.
func (c *Conn) Active() bool { return c.Flags&flagActive != 0 }

// replyFlow returns the flow of the real server's packets.
func (c *Conn) replyFlow() packet.Flow {
	return packet.Flow{Src: c.Dest, SrcPort: c.DestPort, Dst: c.Client, DstPort: c.ClientPort, Proto: c.Proto}
}

// hasReplyKey reports whether the entry is also found by its replies: only
// masqueraded connections have replies that pass the director.
func (c *Conn) hasReplyKey() bool {
	return c.Method == lvs.Masq && c.Flags&(Template|NoClientPort) == 0
}

// Expires returns the engine time at which the entry ends unless another
// packet comes.
func (c *Conn) Expires() time.Duration { return time.Duration(c.expires) * Tick }
