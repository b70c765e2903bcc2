package dataplane

import (
	"errors"
	"fmt"
	"slices"
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
	// DropPacket drops some packets that would start a connection: with 3 every
	// AmDropRate-th, with 2 the more the less memory there is. Of this and the next
	// two: 0 off, 1 waits for memory to run low and then turns itself to 2, 2 turns
	// back to 1 when it does not any more, 3 always on. See SetMemory.
	DropPacket int
	AmDropRate int
	// DropEntry ends, each second, half-open and long idle connections in a
	// random part of the table.
	DropEntry int
	// SecureTCP takes a TCP connection for established only when its real
	// server says so.
	SecureTCP int
	// AMemThresh is how many pages of memory must be available: below, it runs
	// low.
	AMemThresh int
	// SloppySCTP 1 lets any SCTP packet but ABORT start an association.
	SloppySCTP int
	// ScheduleICMP 1 lets an ICMP error from the client side about an unknown
	// connection start it.
	ScheduleICMP int
	// NATICMPSend 1 answers a masqueraded server's packet about no connection
	// with "port unreachable".
	NATICMPSend int
	// PMTUDisc 0 cuts packets that are too large for a tunnel in spite of
	// don't-fragment, and never says so in the outer header.
	PMTUDisc int
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
	return Tunables{ConnReuseMode: 1, AmDropRate: 10, AMemThresh: 1024, PMTUDisc: 1, LblcExpiration: 86400, LblcrExpiration: 86400}
}

// Setting is one of the engine's settings of net.ipv4.vs.
type Setting struct {
	Name    string // without net.ipv4.vs
	Default int    // the kernel's
	Most    int    // the largest value it takes; the smallest is 0
	field   func(*Tunables) *int
}

// Settings lists all of them. conn_max is newer kernels'; its default stands for
// what Options.ConnMax says.
func Settings() []Setting {
	const number = 1 << 30
	all := []Setting{
		{"conn_reuse_mode", 0, 3, func(t *Tunables) *int { return &t.ConnReuseMode }},
		{"expire_nodest_conn", 0, 1, func(t *Tunables) *int { return &t.ExpireNodestConn }},
		{"expire_quiescent_template", 0, 1, func(t *Tunables) *int { return &t.ExpireQuiescentTemplate }},
		{"sloppy_tcp", 0, 1, func(t *Tunables) *int { return &t.SloppyTCP }},
		{"sloppy_sctp", 0, 1, func(t *Tunables) *int { return &t.SloppySCTP }},
		{"drop_entry", 0, modeAlways, func(t *Tunables) *int { return &t.DropEntry }},
		{"drop_packet", 0, modeAlways, func(t *Tunables) *int { return &t.DropPacket }},
		{"secure_tcp", 0, modeAlways, func(t *Tunables) *int { return &t.SecureTCP }},
		{"am_droprate", 0, number, func(t *Tunables) *int { return &t.AmDropRate }},
		{"amemthresh", 0, number, func(t *Tunables) *int { return &t.AMemThresh }},
		{"schedule_icmp", 0, 1, func(t *Tunables) *int { return &t.ScheduleICMP }},
		{"nat_icmp_send", 0, 1, func(t *Tunables) *int { return &t.NATICMPSend }},
		{"pmtu_disc", 0, 1, func(t *Tunables) *int { return &t.PMTUDisc }},
		{"lblc_expiration", 0, number, func(t *Tunables) *int { return &t.LblcExpiration }},
		{"lblcr_expiration", 0, number, func(t *Tunables) *int { return &t.LblcrExpiration }},
		{"conntrack", 0, 1, func(t *Tunables) *int { return &t.Conntrack }},
		{"conn_max", 0, number, func(t *Tunables) *int { return &t.ConnMax }},
	}
	defaults := DefaultTunables()
	for i := range all {
		all[i].Default = *all[i].field(&defaults)
	}
	return all
}

// set changes one setting, or says why not.
func (t *Tunables) set(name, value string) error {
	all := Settings()
	i := slices.IndexFunc(all, func(s Setting) bool { return s.Name == name })
	if i < 0 {
		return errors.New("the director has no setting of that name")
	}
	v, err := strconv.Atoi(value)
	if err != nil || v < 0 || v > all[i].Most {
		return fmt.Errorf("%q is not a number from 0 to %d", value, all[i].Most)
	}
	*all[i].field(t) = v
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
	next := Tunables{}
	for set := false; !set; {
		was := d.tunables.Load() // which weighMemory may change meanwhile
		next = *was
		if err := next.set(name, value); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		kept := next
		set = d.tunables.CompareAndSwap(was, &kept)
	}
	d.table.SetSecureTCP(defending(next.SecureTCP))
	if next.ConnMax == 0 {
		next.ConnMax = d.connMax
	}
	d.limitTables(next.ConnMax)
	return nil
}
