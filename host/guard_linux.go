package host

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/mdlayher/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/packet"
)

// tableName is what the director's two nftables tables (families inet and
// arp) are called, and otherName what those of one are called that takes over from a
// director with the first name: for a moment both guard.
const (
	tableName = "pktdirector"
	otherName = "pktdirector_2"
)

// guardPriority puts the guard's chain before defragmentation (-400): what is
// dropped here costs the host nothing more, and connection tracking never
// hears of it. An AF_PACKET socket has taken its copy before.
const guardPriority = -450

// nftTableOwner is NFT_TABLE_F_OWNER: the table belongs to the netlink socket
// that made it and goes with it, also when the program is killed (Linux 5.12).
const nftTableOwner = 2

// Guard keeps the host's kernel from answering or forwarding what the
// director handles. It is two nftables tables with fixed rules over sets:
// Apply replaces what stands in the sets, Close removes the tables.
type Guard struct {
	conn  *nftables.Conn
	inet  *nftables.Table
	arp   *nftables.Table
	wide  *nftables.Chain // what no set can say
	sets  guardSets
	owned bool
	alone bool // no other director's tables may be there
}

// NewGuard installs the tables, with nothing to guard yet. Tables that a
// killed director left behind are replaced.
func NewGuard() (*Guard, error) { return newGuard(tableName, true, true) }

// NewGuardBeside installs tables beside those of a director that is about to leave,
// whose Guard.Name is beside.
func NewGuardBeside(beside string) (*Guard, error) {
	name := tableName
	if beside == name {
		name = otherName
	}
	return newGuard(name, true, false)
}

// newGuard installs the tables, owned by the socket if the kernel knows that
// and own is set. alone: of all names there may be no others.
func newGuard(name string, own, alone bool) (*Guard, error) {
	g := &Guard{
		inet:  &nftables.Table{Name: name, Family: nftables.TableFamilyINet},
		arp:   &nftables.Table{Name: name, Family: nftables.TableFamilyARP},
		alone: alone,
	}
	var raw *netlink.Conn
	conn, err := nftables.New(nftables.AsLasting(), nftables.WithSockOptions(func(c *netlink.Conn) error {
		raw = c
		return nil
	}))
	if err != nil {
		return nil, fmt.Errorf("nftables: open: %w", err)
	}
	g.conn = conn
	if err := g.install(raw, own); err != nil {
		return nil, errors.Join(fmt.Errorf("nftables: table %s: %w", name, err), conn.CloseLasting())
	}
	return g, nil
}

func (g *Guard) install(raw *netlink.Conn, own bool) error {
	which := g.names()
	if g.alone {
		which = allNames()
	}
	if err := deleteTables(g.conn, which); err != nil {
		return err
	}
	// The library cannot set table flags, so the tables are made by a message
	// of our own on its socket, which thereby owns them.
	if own {
		err := createOwned(raw, g.inet, g.arp)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) && !errors.Is(err, unix.EINVAL) {
			return err
		}
		g.owned = err == nil
	}
	if !g.owned {
		g.conn.AddTable(g.inet)
		g.conn.AddTable(g.arp)
	}
	if err := g.addSets(); err != nil {
		return err
	}
	g.addRules()
	return g.conn.Flush()
}

// Apply makes r what is guarded, in one transaction.
func (g *Guard) Apply(r GuardRules) error {
	names, err := guardedInterfaces(r.Links)
	if err != nil {
		return err
	}
	e := newElements(names, r)
	for _, s := range []struct {
		set   *nftables.Set
		elems []nftables.SetElement
	}{
		{g.sets.links, e.links}, {g.sets.arpLinks, e.links}, {g.sets.arpVIP, e.vip4},
		{g.sets.vip4, e.vip4}, {g.sets.vip6, e.vip6},
		{g.sets.served4, e.served4}, {g.sets.served6, e.served6},
		{g.sets.frag4, e.frag4}, {g.sets.frag6, e.frag6},
		{g.sets.reply4, e.reply4}, {g.sets.reply6, e.reply6},
	} {
		g.conn.FlushSet(s.set)
		if err := g.conn.SetAddElements(s.set, s.elems); err != nil {
			return fmt.Errorf("nftables: set %s: %w", s.set.Name, err)
		}
	}
	g.replaceWide(r)
	if err := g.conn.Flush(); err != nil {
		return fmt.Errorf("nftables: table %s: %w", g.Name(), err)
	}
	return nil
}

// Name is what the guard's tables are called.
func (g *Guard) Name() string { return g.inet.Name }

func (g *Guard) names() []string { return []string{g.Name()} }

func allNames() []string { return []string{tableName, otherName} }

// RemoveBeside removes the tables that a director has left which was to take over from
// this one and was killed.
func (g *Guard) RemoveBeside() error {
	return deleteTables(g.conn, slices.DeleteFunc(allNames(), func(n string) bool { return n == g.Name() }))
}

// Owned reports whether the kernel removes the tables by itself when the
// program ends in any way.
func (g *Guard) Owned() bool { return g.owned }

// Close removes everything the guard installed.
func (g *Guard) Close() error {
	err := deleteTables(g.conn, g.names())
	return errors.Join(err, g.conn.CloseLasting())
}

// removeTables deletes the tables that a killed director may have left.
func removeTables() (found bool, err error) {
	conn, err := nftables.New()
	if err != nil {
		return false, fmt.Errorf("nftables: open: %w", err)
	}
	tables, err := ourTables(conn, allNames())
	if err != nil || len(tables) == 0 {
		return false, err
	}
	return true, deleteTables(conn, allNames())
}

func ourTables(conn *nftables.Conn, names []string) ([]*nftables.Table, error) {
	all, err := conn.ListTables()
	if err != nil {
		return nil, fmt.Errorf("nftables: list tables: %w", err)
	}
	return slices.DeleteFunc(all, func(t *nftables.Table) bool {
		return !slices.Contains(names, t.Name) || t.Family != nftables.TableFamilyINet && t.Family != nftables.TableFamilyARP
	}), nil
}

func deleteTables(conn *nftables.Conn, names []string) error {
	tables, err := ourTables(conn, names)
	if err != nil {
		return err
	}
	for _, t := range tables {
		conn.DelTable(t)
	}
	what := strings.Join(names, ", ")
	if err := conn.Flush(); err != nil {
		if errors.Is(err, unix.EPERM) {
			return fmt.Errorf("table %s: %w (%w)", what, ErrOtherDirector, err)
		}
		return fmt.Errorf("delete table %s: %w", what, err)
	}
	return nil
}

// createOwned makes tables owned by the socket c, in one batch.
func createOwned(c *netlink.Conn, tables ...*nftables.Table) error {
	batch := []netlink.Message{batchMessage(unix.NFNL_MSG_BATCH_BEGIN)}
	for _, t := range tables {
		attrs, err := netlink.MarshalAttributes([]netlink.Attribute{
			{Type: unix.NFTA_TABLE_NAME, Data: []byte(t.Name + "\x00")},
			{Type: unix.NFTA_TABLE_FLAGS, Data: []byte{0, 0, 0, nftTableOwner}},
		})
		if err != nil {
			return err
		}
		batch = append(batch, netlink.Message{
			Header: netlink.Header{
				Type:  unix.NFNL_SUBSYS_NFTABLES<<8 | unix.NFT_MSG_NEWTABLE,
				Flags: netlink.Request | netlink.Acknowledge | netlink.Create,
			},
			Data: append([]byte{byte(t.Family), unix.NFNETLINK_V0, 0, 0}, attrs...),
		})
	}
	batch = append(batch, batchMessage(unix.NFNL_MSG_BATCH_END))
	if _, err := c.SendMessages(batch); err != nil {
		return err
	}
	var errs error
	for range tables {
		if _, err := c.Receive(); err != nil {
			errs = errors.Join(errs, err)
			if errors.Is(err, unix.EPERM) {
				break // the kernel answers the whole batch with one message
			}
		}
	}
	return errs
}

// batchMessage begins or ends a batch; its resource id is the subsystem.
func batchMessage(kind netlink.HeaderType) netlink.Message {
	return netlink.Message{
		Header: netlink.Header{Type: kind, Flags: netlink.Request},
		Data:   []byte{unix.AF_UNSPEC, unix.NFNETLINK_V0, 0, unix.NFNL_SUBSYS_NFTABLES},
	}
}

// elements are the sets' contents as the kernel wants them: fields of a
// concatenation each padded to 4 bytes.
type elements struct {
	links                                      []nftables.SetElement
	vip4, vip6, served4, served6, frag4, frag6 []nftables.SetElement
	reply4, reply6                             []nftables.SetElement
}

func newElements(links []string, r GuardRules) *elements {
	e := &elements{}
	for _, name := range links {
		key := make([]byte, unix.IFNAMSIZ)
		copy(key, name)
		e.links = append(e.links, nftables.SetElement{Key: key})
	}
	for _, vip := range r.VIPs {
		if vip.Is4() {
			e.vip4 = add(e.vip4, addrKey(vip))
		} else {
			e.vip6 = add(e.vip6, addrKey(vip))
		}
	}
	for _, s := range r.Served {
		if s.VIP.Is4() {
			e.served4 = add(e.served4, portKey(s.VIP, s.Proto, s.Port))
			e.frag4 = add(e.frag4, protoKey(s.VIP, s.Proto))
		} else {
			e.served6 = add(e.served6, portKey(s.VIP, s.Proto, s.Port))
			e.frag6 = add(e.frag6, protoKey(s.VIP, s.Proto))
		}
	}
	for _, p := range r.Replies {
		switch {
		case p.Ports.From != p.Ports.To || p.Ports.From == 0: // has a rule
		case p.RIP.Is4():
			e.reply4 = add(e.reply4, portKey(p.RIP, p.Proto, p.Ports.From))
		default:
			e.reply6 = add(e.reply6, portKey(p.RIP, p.Proto, p.Ports.From))
		}
	}
	return e
}

// add appends a key that is not there yet: the kernel refuses duplicates in
// one batch on some versions.
func add(elems []nftables.SetElement, key []byte) []nftables.SetElement {
	if slices.ContainsFunc(elems, func(e nftables.SetElement) bool { return slices.Equal(e.Key, key) }) {
		return elems
	}
	return append(elems, nftables.SetElement{Key: key})
}

func addrKey(a packet.Addr) []byte { return a.Netip().AsSlice() }

func protoKey(a packet.Addr, p packet.Proto) []byte { return append(addrKey(a), byte(p), 0, 0, 0) }

func portKey(a packet.Addr, p packet.Proto, port uint16) []byte {
	return append(protoKey(a, p), byte(port>>8), byte(port), 0, 0)
}
