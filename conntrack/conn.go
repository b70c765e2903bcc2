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
	// ClampMSS: the connection's service wants smaller segments where the way
	// to the real server needs them.
	ClampMSS
	// TOA: the real server is told the client's address by a TCP option.
	TOA
)

// Conn binds a client's connection to its destination. It holds no pointers.
// A *Conn is valid while its shard is locked; copy it to keep it. What only some
// kinds of entries have shares its place with what only others have; methods
// tell which it is.
type Conn struct {
	Client, Virtual, Dest packet.Addr
	// Source, with SourcePort, stands for the client towards a FullNAT server.
	Source                                        packet.Addr
	ClientPort, VirtualPort, DestPort, SourcePort uint16
	Proto                                         packet.Proto
	Method                                        lvs.Method
	State                                         State
	Flags                                         uint8
	DestID                                        uint32 // lvs.Destination.ID
	note                                          uint32 // Tunnel, FirstAck or Parent, by Method

	// Control is the template the connection was made through, which must
	// not end before it. Zero: none. Of a template it is its own lifetime, in
	// ticks, and the number of connections that hold it.
	Control TemplateRef

	self           uint32 // own handle in the shard
	prev, next     uint32 // neighbours in the timer wheel's slot, or, as next, in its page's free list
	before, behind uint32 // neighbours in the line of the shard that the entry stands in

	began       uint32    // engine time in units of beganUnit ticks
	packets     [2]uint32 // by Direction: what was counted, the low bits
	bytes       [2]uint32
	bytesHigh   [2]uint16
	expires     uint32 // tick at which the entry ends, the low bits
	expiresHigh uint8
	packetsHigh uint8 // four bits for each direction
	slot        uint8 // wheel level and slot
	rank        rank  // the line of the shard that the entry stands in
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
	to, port := c.answersTo()
	return packet.Flow{Src: c.Dest, SrcPort: c.DestPort, Dst: to, DstPort: port, Proto: c.Proto}
}

// answersTo is where the real server sends its packets: to the client, or, with
// FullNAT, to an address of the director's.
func (c *Conn) answersTo() (packet.Addr, uint16) {
	if c.Method == lvs.FullNAT {
		return c.Source, c.SourcePort
	}
	return c.Client, c.ClientPort
}

// hasReplyKey reports whether the entry is also found by its replies: only
// masqueraded and FullNAT connections have replies that pass the director.
func (c *Conn) hasReplyKey() bool {
	return c.Method.RewritesPorts() && c.Flags&(Template|NoClientPort) == 0
}

// Expires returns the engine time at which the entry ends unless another
// packet comes.
func (c *Conn) Expires() time.Duration { return time.Duration(c.ends()) * Tick }

// ends returns the tick at which the entry ends.
func (c *Conn) ends() uint64 { return uint64(c.expiresHigh)<<32 | uint64(c.expires) }

func (c *Conn) setEnds(tick uint64) { c.expires, c.expiresHigh = uint32(tick), uint8(tick>>32) }

// Tunnel returns the tunnel to the real server of a connection of the tunnelling
// method; the zero TunnelInfo with others.
func (c *Conn) Tunnel() lvs.TunnelInfo {
	if c.Method != lvs.Tunnel {
		return lvs.TunnelInfo{}
	}
	return lvs.TunnelInfo{Type: lvs.TunnelType(c.note >> 24), Checksum: lvs.TunnelChecksum(c.note >> 16), Port: uint16(c.note)}
}

// SetTunnel sets what Tunnel returns. The method must be Tunnel.
func (c *Conn) SetTunnel(t lvs.TunnelInfo) {
	c.note = uint32(t.Type)<<24 | uint32(t.Checksum)<<16 | uint32(t.Port)
}

// FirstAck returns, of a FullNAT connection whose server is told the client, the
// acknowledgement number of a client that has nothing of the server but its SYN;
// 0: no SYN seen.
func (c *Conn) FirstAck() uint32 {
	if c.Flags&TOA == 0 {
		return 0
	}
	return c.note
}

// SetFirstAck sets what FirstAck returns. The flag TOA must be set.
func (c *Conn) SetFirstAck(n uint32) { c.note = n }

// Parent names, for its owner, the masqueraded connection that announced this
// one; it must not end first. 0: none.
func (c *Conn) Parent() uint32 {
	if c.Method != lvs.Masq {
		return 0
	}
	return c.note
}

// SetParent sets what Parent returns. The method must be Masq.
func (c *Conn) SetParent(id uint32) { c.note = id }

// Lifetime is how many ticks a template lives after a connection was made
// through it; 0 for what is no template.
func (c *Conn) Lifetime() uint32 {
	if c.Flags&Template == 0 {
		return 0
	}
	return c.Control.shard
}

// SetLifetime sets what Lifetime returns. The flag Template must be set.
func (c *Conn) SetLifetime(ticks uint32) { c.Control.shard = ticks }

// holders counts the connections that were made through a template.
func (c *Conn) holders() uint32 {
	if c.Flags&Template == 0 {
		return 0
	}
	return c.Control.handle
}
