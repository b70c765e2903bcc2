package dataplane

import (
	"errors"
	"fmt"
	"strconv"
)

// Tunables are the kernel's net.ipv4.vs settings that change what the engine
// does, at the kernel's defaults.
type Tunables struct {
	// ConnReuseMode: a SYN on a connection that is over is scheduled anew: 0
	// never; 1 in TIME_WAIT and CLOSE; 2 and 3 also in FIN_WAIT where replies
	// are not seen.
	ConnReuseMode int
	// ExpireNodestConn 1 ends the connections of a removed server at once.
	ExpireNodestConn int
	// ExpireQuiescentTemplate 1 lets clients leave a server of weight 0 with
	// their next connection.
	ExpireQuiescentTemplate int
	// SloppyTCP 1 lets any TCP segment but RST start a connection.
	SloppyTCP int
	// DropPacket 3 drops every AmDropRate-th packet that would start a
	// connection.
	DropPacket int
	AmDropRate int
	// DropEntry 3 ends, each second, half-open and long idle connections in a
	// random part of the table.
	DropEntry int
	// SecureTCP 3 takes a TCP connection for established only when its real
	// server says so.
	SecureTCP int
	// SloppySCTP 1 lets any SCTP packet but ABORT start an association.
	SloppySCTP int
	// ScheduleICMP 1 lets an ICMP error from the client side about an unknown
	// connection start it.
	ScheduleICMP int
	// LblcExpiration and LblcrExpiration are how long, in seconds, lblc and
	// lblcr remember an address that is not used.
	LblcExpiration, LblcrExpiration int
	// Conntrack 1 has the kernel's netfilter see every connection, too. Here it
	// changes nothing: frames and states are the same with both in the kernel.
	Conntrack int
	// ConnMax is the largest number of connections, and of templates; 0 is
	// Options.ConnMax.
	ConnMax int
}

// DefaultTunables are the kernel's.
func DefaultTunables() Tunables {
	return Tunables{ConnReuseMode: 1, AmDropRate: 10, LblcExpiration: 86400, LblcrExpiration: 86400}
}

// field returns the setting of a kernel name with the largest value it takes.
func (t *Tunables) field(name string) (*int, int) {
	switch name {
	case "conn_reuse_mode":
		return &t.ConnReuseMode, 3
	case "expire_nodest_conn":
		return &t.ExpireNodestConn, 1
	case "expire_quiescent_template":
		return &t.ExpireQuiescentTemplate, 1
	case "sloppy_tcp":
		return &t.SloppyTCP, 1
	case "drop_packet":
		return &t.DropPacket, 3
	case "drop_entry":
		return &t.DropEntry, 3
	case "secure_tcp":
		return &t.SecureTCP, 3
	case "sloppy_sctp":
		return &t.SloppySCTP, 1
	case "schedule_icmp":
		return &t.ScheduleICMP, 1
	case "lblc_expiration":
		return &t.LblcExpiration, 1 << 30
	case "lblcr_expiration":
		return &t.LblcrExpiration, 1 << 30
	case "conntrack":
		return &t.Conntrack, 1
	case "conn_max":
		return &t.ConnMax, 1 << 30
	case "am_droprate":
		return &t.AmDropRate, 1 << 30
	}
	return nil, 0
}

// always is the mode of drop_entry, drop_packet and secure_tcp that does not
// depend on free memory, which the engine cannot see: modes 1 and 2, which wait
// for it to run low, do nothing here.
const always = 3

// set changes one setting, or says why not.
func (t *Tunables) set(name, value string) error {
	field, most := t.field(name)
	if field == nil {
		return errors.New("the director has no setting of that name")
	}
	v, err := strconv.Atoi(value)
	if err != nil || v < 0 || v > most {
		return fmt.Errorf("%q is not a number from 0 to %d", value, most)
	}
	*field = v
	return nil
}

// CheckTunable reports whether SetTunable would take the setting.
func CheckTunable(name, value string) error {
	t := DefaultTunables()
	return t.set(name, value)
}

// SetTunable changes a setting by its kernel name, without net.ipv4.vs.
func (d *Director) SetTunable(name, value string) error {
	d.applying.Lock()
	defer d.applying.Unlock()
	next := *d.tunables.Load()
	if err := next.set(name, value); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	d.tunables.Store(&next)
	d.table.SetSecureTCP(next.SecureTCP == always)
	if next.ConnMax == 0 {
		next.ConnMax = d.connMax
	}
	d.limitTables(next.ConnMax)
	return nil
}
