package host

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"slices"
	"time"

	mdl "github.com/mdlayher/netlink"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"pktdirector/dataplane"
)

// Changes of routes come in bursts: a reading waits until nothing has come
// for settle, but at most patience.
const (
	settle   = 20 * time.Millisecond
	patience = 200 * time.Millisecond
)

// Watcher follows the host's routes, addresses and neighbours on the links'
// interfaces. Interfaces are known by name, so one that is deleted and made
// again goes on under its new index.
type Watcher struct {
	links  []Link
	static Static
	table  Table
	log    *slog.Logger

	events *mdl.Conn
	handle *netlink.Handle
	last   dataplane.HostTable
	index  map[int]int // host's interface index to link
	shown  []string    // interfaces and indexes, to notice new ones
	kept   *Claim
}

// Keep makes the watcher put c's routes into a tundev back when they are gone:
// the kernel drops them when the device goes down. Call it before Run.
func (w *Watcher) Keep(c *Claim) { w.kept = c }

// restore puts kept routes back that are gone, where their device is up.
func (w *Watcher) restore(all interfaces) {
	if w.kept == nil {
		return
	}
	// Until all are looked at: what is steered otherwise meanwhile must not come
	// back.
	w.kept.mu.Lock()
	defer w.kept.mu.Unlock()
	for i := range w.kept.routes {
		r := &w.kept.routes[i]
		dev := all.index(r.LinkIndex)
		if dev == nil || dev.Attrs().Flags&net.FlagUp == 0 {
			continue
		}
		table := r.Table
		if table == 0 {
			table = unix.RT_TABLE_MAIN
		}
		family := netlink.FAMILY_V4
		if r.Dst.IP.To4() == nil {
			family = netlink.FAMILY_V6
		}
		there, err := w.handle.RouteListFiltered(family, &netlink.Route{Table: table, LinkIndex: r.LinkIndex}, netlink.RT_FILTER_TABLE|netlink.RT_FILTER_OIF)
		if err == nil && slices.ContainsFunc(there, func(t netlink.Route) bool { return sameDst(t.Dst, r.Dst) }) {
			continue
		}
		if err := w.handle.RouteReplace(r); err != nil {
			w.log.Warn("a route into the tundev is gone and could not be put back", "to", r.Dst, "dev", dev.Attrs().Name, "error", err)
			continue
		}
		w.log.Info("a route into the tundev was gone, and is back", "to", r.Dst, "dev", dev.Attrs().Name)
	}
}

// sameDst compares destinations; nil is the default route of a family.
func sameDst(a, b *net.IPNet) bool {
	zero := func(n *net.IPNet) bool { return n == nil || n.IP.IsUnspecified() }
	if zero(a) || zero(b) {
		return zero(a) && zero(b)
	}
	return a.String() == b.String()
}

// NewWatcher subscribes to changes, reads everything once and tells table.
// Both sockets belong to the caller's network namespace.
func NewWatcher(links []Link, static Static, table Table, log *slog.Logger) (*Watcher, error) {
	events, err := mdl.Dial(unix.NETLINK_ROUTE, &mdl.Config{Groups: unix.RTMGRP_LINK | unix.RTMGRP_NEIGH |
		unix.RTMGRP_IPV4_IFADDR | unix.RTMGRP_IPV4_ROUTE | unix.RTMGRP_IPV6_IFADDR | unix.RTMGRP_IPV6_ROUTE})
	if err != nil {
		return nil, fmt.Errorf("netlink: subscribe to routes: %w", err)
	}
	_ = events.SetReadBuffer(1 << 20) // best effort: an overflow leads to a new reading
	handle, err := netlink.NewHandle(unix.NETLINK_ROUTE)
	if err != nil {
		return nil, errors.Join(fmt.Errorf("netlink: %w", err), events.Close())
	}
	w := &Watcher{links: links, static: static, table: table, log: log, events: events, handle: handle}
	if err := w.refresh(true); err != nil {
		return nil, errors.Join(err, w.Close())
	}
	return w, nil
}

// Close releases the sockets. Run must have returned.
func (w *Watcher) Close() error {
	w.handle.Close()
	return w.events.Close()
}

// Run tells the table of changes until ctx ends.
func (w *Watcher) Run(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = w.events.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	var due, latest time.Time // when to read again; zero: nothing has changed
	neighbours := false       // whether the neighbours must be read again, too
	for {
		deadline := due
		if !latest.IsZero() && latest.Before(due) {
			deadline = latest
		}
		if err := w.events.SetReadDeadline(deadline); err != nil {
			return fmt.Errorf("netlink: %w", err)
		}
		if ctx.Err() != nil {
			return nil
		}
		messages, err := w.events.Receive()
		switch {
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, os.ErrDeadlineExceeded):
			if err := w.refresh(neighbours); err != nil {
				w.log.Warn("the host's routes could not be read; trying again", "error", err)
				due, latest = time.Now().Add(time.Second), time.Time{}
				continue
			}
			due, latest, neighbours = time.Time{}, time.Time{}, false
			continue
		case errors.Is(err, unix.ENOBUFS):
			neighbours = true // messages were lost
		case err != nil:
			return fmt.Errorf("netlink: receive: %w", err)
		default:
			if !w.note(messages) {
				continue
			}
		}
		due = time.Now().Add(settle)
		if latest.IsZero() {
			latest = time.Now().Add(patience)
		}
	}
}

// note passes neighbours on and reports whether something else has changed.
func (w *Watcher) note(messages []mdl.Message) (changed bool) {
	for _, m := range messages {
		switch m.Header.Type {
		case unix.RTM_NEWNEIGH, unix.RTM_DELNEIGH:
			n, err := parseNeighbour(m.Data)
			if err != nil {
				continue
			}
			link, ok := w.index[n.LinkIndex]
			if !ok {
				continue
			}
			if m.Header.Type == unix.RTM_DELNEIGH {
				n.State = netlink.NUD_FAILED
			}
			if hint, ok := hintFrom(n, link, w.links[link].VLAN); ok {
				w.table.Learn(hint)
			}
		case unix.RTM_NEWLINK, unix.RTM_DELLINK, unix.RTM_NEWADDR, unix.RTM_DELADDR, unix.RTM_NEWROUTE, unix.RTM_DELROUTE:
			changed = true
		}
	}
	return changed
}

// refresh reads the host's tables and tells what is new.
func (w *Watcher) refresh(neighbours bool) error {
	r, err := read(w.handle)
	if err != nil {
		return err
	}
	var shown []string
	for _, l := range w.links {
		if i := r.all.of(l); i != nil {
			shown = append(shown, fmt.Sprint(i.Attrs().Name, i.Attrs().Index))
		}
	}
	if !slices.Equal(shown, w.shown) {
		w.shown, neighbours = shown, true
	}
	w.restore(r.all)
	w.index, _ = r.indexes(w.links)
	t := r.table(w.links, w.static)
	if !slices.Equal(t.Routes, w.last.Routes) || !slices.Equal(t.Addrs, w.last.Addrs) || !slices.Equal(t.Local, w.last.Local) || w.last.Routes == nil {
		w.last = t
		w.table.SetHost(t)
		w.log.Debug("host table", "routes", len(t.Routes), "addresses", len(t.Addrs))
	}
	if !neighbours {
		return nil
	}
	hints, err := r.neighbours(w.handle, w.links)
	if err != nil {
		return err
	}
	for _, n := range hints {
		w.table.Learn(n)
	}
	return nil
}
