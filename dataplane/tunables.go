package dataplane

import (
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
}

// DefaultTunables are the kernel's.
func DefaultTunables() Tunables { return Tunables{ConnReuseMode: 1, AmDropRate: 10} }

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
	case "am_droprate":
		return &t.AmDropRate, 1 << 30
	}
	return nil, 0
}

// SetTunable changes a setting by its kernel name, without net.ipv4.vs.
func (d *Director) SetTunable(name, value string) error {
	next := *d.tunables.Load()
	field, most := next.field(name)
	if field == nil {
		return fmt.Errorf("setting %q is not known", name)
	}
	v, err := strconv.Atoi(value)
	if err != nil || v < 0 || v > most {
		return fmt.Errorf("%s: %q is not a number from 0 to %d", name, value, most)
	}
	*field = v
	d.tunables.Store(&next)
	return nil
}
