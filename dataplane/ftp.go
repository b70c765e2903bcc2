package dataplane

import (
	"bytes"
	"sync"
	"sync/atomic"

	"pktdirector/conntrack"
	"pktdirector/ftp"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// Limits of the FTP helper.
const (
	// ftpRecords is how many control connections are helped at a time. Others
	// are forwarded as they are.
	ftpRecords = 65536
	// ftpExpected is how many data connections of one control connection may
	// be expected at a time. A client uses one.
	ftpExpected = 16
)

// ftpHelper knows the control connections of masqueraded FTP that agreed on
// data connections. Records are referred to by number, counted from 1. Its lock
// is taken after a shard's.
type ftpHelper struct {
	waiting atomic.Int64 // connections expected from an unknown client port

	mu      sync.Mutex
	byFlow  map[packet.Flow]uint32 // the control connection's requests
	records []ftpRecord
	free    uint32 // first of the free records; 0: none
}

// ftpRecord is what is known of one control connection. It lives as long as the
// connection or one of the data connections it announced.
type ftpRecord struct {
	refs     uint32 // the control connection, while it lives, and its data connections
	expected uint32 // data connections that have not begun
	next     uint32 // of a free record
	// The client asked for a data connection by PASV or EPSV and has no answer
	// yet. Nothing else is taken for an answer.
	askedPASV, askedEPSV bool
	replies              ftp.Replies
	edits                ftp.Edits // of the server's bytes
}

func (h *ftpHelper) record(id uint32) *ftpRecord { return &h.records[id-1] }

// ftpControl reports whether a connection is a control connection that the
// helper reads.
func ftpControl(c *conntrack.Conn) bool {
	return c.VirtualPort == ftpPort && c.Proto == packet.TCP && c.Method == lvs.Masq && c.Flags&conntrack.Template == 0
}

func requestFlow(c *conntrack.Conn) packet.Flow {
	return packet.Flow{Proto: c.Proto, Src: c.Client, SrcPort: c.ClientPort, Dst: c.Virtual, DstPort: c.VirtualPort}
}

// add makes a record for a control connection; 0 when there are too many. h.mu
// and the connection's shard are locked.
func (h *ftpHelper) add(key packet.Flow) uint32 {
	id := h.free
	switch {
	case id != 0:
		h.free = h.record(id).next
	case len(h.records) < ftpRecords:
		h.records = append(h.records, ftpRecord{})
		id = uint32(len(h.records))
	default:
		return 0
	}
	*h.record(id) = ftpRecord{refs: 1}
	if h.byFlow == nil {
		h.byFlow = map[packet.Flow]uint32{}
	}
	h.byFlow[key] = id
	return id
}

// release takes back a reference. h.mu is locked.
func (h *ftpHelper) release(id uint32) {
	r := h.record(id)
	if r.refs--; r.refs == 0 {
		r.next, h.free = h.free, id
	}
}

// ended notes the end of a connection. Its shard is locked.
func (h *ftpHelper) ended(c *conntrack.Conn) {
	if c.Flags&conntrack.NoClientPort != 0 {
		h.waiting.Add(-1)
	}
	control := ftpControl(c)
	if c.Parent() == 0 && !control {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	if c.Parent() != 0 {
		if c.State == conntrack.Listen {
			h.record(c.Parent()).expected--
		}
		h.release(c.Parent())
	}
	if control {
		key := requestFlow(c)
		if id := h.byFlow[key]; id != 0 {
			delete(h.byFlow, key)
			h.release(id)
		}
	}
}

// holds reports whether data connections need a control connection whose time
// has come. Its shard is locked.
func (h *ftpHelper) holds(c *conntrack.Conn) bool {
	if !ftpControl(c) {
		return false
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.byFlow[requestFlow(c)]
	return id != 0 && h.record(id).refs > 1
}

// began notes that an expected data connection has begun.
func (h *ftpHelper) began(c *conntrack.Conn) {
	h.mu.Lock()
	h.record(c.Parent()).expected--
	h.mu.Unlock()
}

// ftpRequest reads what a client sends on a control connection, and moves the
// acknowledgements it carries to the server's own sequence numbers.
func (w *Worker) ftpRequest(p *packet.Packet, c *conntrack.Conn) {
	for rest := tcpPayload(p); len(rest) > 0; {
		line := rest
		if end := bytes.IndexByte(rest, '\n'); end >= 0 {
			line, rest = rest[:end], rest[end+1:]
		} else {
			rest = nil
		}
		switch m := ftp.ParseCommand(line); {
		case m.Kind == ftp.PASV, m.Kind == ftp.EPSV:
			w.ftpAsked(c, m.Kind)
		case m.Kind != ftp.Other && m.Addr == c.Client:
			// An address of somebody else is not the client's to open
			// the director for (RFC 2577 section 3).
			w.ftpAsked(c, m.Kind)
			w.expect(c, m)
		}
	}
	h := &w.d.ftp
	h.mu.Lock()
	if id := h.byFlow[requestFlow(c)]; id != 0 && h.record(id).edits.Any() {
		moveAcks(p, &h.record(id).edits)
	}
	h.mu.Unlock()
}

// ftpAsked notes that the client is about to be told of a data connection.
func (w *Worker) ftpAsked(c *conntrack.Conn, kind ftp.Kind) {
	key, h := requestFlow(c), &w.d.ftp
	slot := w.d.table.Lock(c.Proto, c.Client, c.ClientPort)
	defer slot.Unlock()
	if slot.Request(&key) == nil {
		return // it has ended meanwhile
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	id := h.byFlow[key]
	if id == 0 {
		if id = h.add(key); id == 0 {
			return
		}
	}
	r := h.record(id)
	r.askedPASV = r.askedPASV || kind == ftp.PASV
	r.askedEPSV = r.askedEPSV || kind == ftp.EPSV
}

// ftpReply reads what a server sends on a control connection: the answers that
// announce a data connection. Where it names the server's address, the VIP will
// stand instead. It returns by how many bytes the packet will grow.
func (w *Worker) ftpReply(p *packet.Packet, c *conntrack.Conn) (growth int) {
	var announced [2]ftp.Message
	h := &w.d.ftp
	h.mu.Lock()
	id := h.byFlow[requestFlow(c)]
	if id == 0 {
		h.mu.Unlock()
		return 0
	}
	r, seq, payload := h.record(id), tcpSeq(p), tcpPayload(p)
	r.edits.Forget(seq)
	r.replies.Read(seq, payload, func(m ftp.Message, began int) {
		switch {
		case m.Kind == ftp.EPSV && r.askedEPSV:
			r.askedEPSV, announced[1] = false, m
		case m.Kind == ftp.PASV && r.askedPASV && m.Addr == c.Virtual:
			r.askedPASV, announced[0] = false, m
		case m.Kind == ftp.PASV && r.askedPASV && m.Addr == c.Dest && c.Virtual.Is4():
			r.askedPASV, announced[0] = false, m
			// An answer whose address has left in an earlier segment stays
			// as it is.
			if at := began + m.Start; at >= 0 {
				var text [maxAddrText]byte
				r.edits.Add(seq+uint32(at), m.End-m.Start, len(ftp.AppendAddr(text[:0], c.Virtual)))
			}
		}
	})
	growth = r.edits.Growth(seq, len(payload))
	h.mu.Unlock()
	for _, m := range announced {
		if m.Kind != ftp.Other {
			w.expect(c, m)
		}
	}
	return growth
}

// maxAddrText is the length of the longest IPv4 address in an answer 227.
const maxAddrText = 15

// expect enters the data connection that a control connection announced.
func (w *Worker) expect(control *conntrack.Conn, m ftp.Message) {
	c := conntrack.Conn{
		Proto: packet.TCP, Client: control.Client, Virtual: control.Virtual, Dest: control.Dest,
		Method: control.Method, DestID: control.DestID,
	}
	if m.Kind == ftp.PORT || m.Kind == ftp.EPRT {
		// The server calls from the port below that of its control
		// connection (RFC 959 section 3.2).
		c.ClientPort, c.VirtualPort, c.DestPort = m.Port, control.VirtualPort-1, control.DestPort-1
	} else {
		c.Flags, c.VirtualPort, c.DestPort = conntrack.NoClientPort, m.Port, m.Port
	}
	slot := w.d.table.Lock(c.Proto, c.Client, c.ClientPort)
	defer slot.Unlock()
	h, f := &w.d.ftp, requestFlow(&c)
	if old := slot.Request(&f); old != nil {
		if old.State == conntrack.Listen {
			slot.ExpectAgain(old, w.now)
		}
		return
	}
	h.mu.Lock()
	id := h.byFlow[requestFlow(control)]
	if id == 0 || h.record(id).expected >= ftpExpected {
		h.mu.Unlock()
		return
	}
	h.record(id).refs++
	h.record(id).expected++
	c.SetParent(id)
	h.mu.Unlock()
	if c.Flags&conntrack.NoClientPort != 0 {
		h.waiting.Add(1)
	}
	dest := w.d.dests.Load().all[c.DestID]
	dest.Bind(false)
	if svc := w.d.rules.Load().services[dest.Service]; svc != nil {
		svc.stats.Conns.Add(1)
	}
	if _, err := slot.Expect(c, w.now); err != nil {
		c.State = conntrack.Listen
		w.d.ended(&c) // the server's calls could not be told from another's
	}
}

// called enters the connection that p's sender was expected to begin, from
// whatever port, under the port it began it from.
func (w *Worker) called(p *packet.Packet) {
	f := p.Flow
	f.SrcPort = 0
	slot := w.d.table.Lock(f.Proto, f.Src, 0)
	expected := slot.Request(&f)
	if expected == nil {
		slot.Unlock()
		return
	}
	c := slot.Take(expected)
	slot.Unlock()
	w.d.ftp.waiting.Add(-1)
	c.ClientPort = p.Flow.SrcPort
	c.Flags &^= conntrack.NoClientPort
	slot = w.d.table.Lock(f.Proto, f.Src, c.ClientPort)
	defer slot.Unlock()
	if slot.Request(&p.Flow) != nil {
		w.d.ended(&c) // another worker was given the same packet
		return
	}
	if _, err := slot.Insert(c); err != nil {
		w.d.ended(&c)
	}
}
