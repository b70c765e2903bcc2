package conntrack

import "time"

// KeepWhile has the table ask, under an entry's shard's lock, whether other
// connections still need the entry whose time has come; it then lives on for
// another minute. Call it before the table is used.
func (t *Table) KeepWhile(held func(*Conn) bool) { t.held = held }

// Expect adds a copy of c as a connection that was announced and has not begun:
// in LISTEN, for that state's timeout from now.
func (l Slot) Expect(c Conn, now time.Duration) (*Conn, error) {
	c.State = Listen
	entry, err := l.Insert(c)
	if err == nil {
		l.t.dequeue(l.s, entry) // no flood makes these
		l.ExpectAgain(entry, now)
	}
	return entry, err
}

// ExpectAgain starts an expected connection's timeout anew.
func (l Slot) ExpectAgain(c *Conn, now time.Duration) {
	l.expireAt(c, now+l.t.timeouts.Load()[Listen])
}

// Take takes an entry out of the table without ending the connection, and
// returns it, to be inserted under another key.
func (l Slot) Take(c *Conn) Conn {
	taken := *c
	l.s.disarm(c)
	l.t.forget(l.s, c)
	taken.Flags &^= used
	return taken
}
