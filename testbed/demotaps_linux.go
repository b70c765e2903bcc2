package testbed

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"

	"pktdirector/lvs"
)

// demoTaps count what tells where replies went.
type demoTaps struct {
	requests []*Tap // to the VIP, at the director
	replies  []*Tap // from the VIP, at the director
	arrived  *Tap   // from the VIP, at the client
	resets   *Tap   // RSTs, at the client
}

func (d *Demo) openTaps() (*demoTaps, error) {
	t, vip := &demoTaps{}, d.Topology.VIP
	var errs []error
	tap := func(h *Host, nic string, w Watch) *Tap {
		one, err := d.lab.Tap(h.Name, nic, w)
		errs = append(errs, err)
		return one
	}
	for _, n := range d.host.NICs {
		t.requests = append(t.requests, tap(d.host, n.Segment, ToVIP(vip)))
		t.replies = append(t.replies, tap(d.host, n.Segment, FromVIP(vip)))
	}
	client := d.Topology.With(Client)[0]
	t.arrived = tap(client, client.NICs[0].Segment, FromVIP(vip))
	t.resets = tap(client, client.NICs[0].Segment, Resets)
	if err := errors.Join(errs...); err != nil {
		t.close()
		return nil, err
	}
	return t, nil
}

func (t *demoTaps) close() {
	for _, tap := range append(append([]*Tap{t.arrived, t.resets}, t.requests...), t.replies...) {
		if tap != nil {
			tap.Close()
		}
	}
}

// replyPath tells which way replies took, and whether it is the method's.
func (t *demoTaps) replyPath(m lvs.Method) (string, error) {
	requests, err1 := total(t.requests...)
	replies, err2 := total(t.replies...)
	arrived, err3 := total(t.arrived)
	if err := errors.Join(err1, err2, err3); err != nil {
		return "reply path", err
	}
	what := fmt.Sprintf("frames from the VIP: %d reached the client, %d passed the director (which got %d to the VIP)", arrived, replies, requests)
	switch {
	case requests == 0 || arrived == 0:
		return what, errors.New("there was no traffic to count")
	case throughDirector(m) && replies < arrived:
		return what, errors.New("with NAT every reply passes the director")
	case !throughDirector(m) && replies > 0:
		return what, fmt.Errorf("with %s no reply passes the director", m.Short())
	}
	return what, nil
}

// noResets tells how many RST segments client and VIP exchanged.
func (t *demoTaps) noResets() (string, error) {
	n, err := total(t.resets)
	if err == nil && n > 0 {
		err = errors.New("somebody refuses what the director forwards")
	}
	return fmt.Sprintf("%d RST at the client", n), err
}

func total(taps ...*Tap) (sum uint64, err error) {
	for _, t := range taps {
		n, err := t.Count()
		if err != nil {
			return 0, err
		}
		sum += n
	}
	return sum, nil
}

// tcpCounters are a kernel's counts of TCP segments (RFC 4022).
type tcpCounters struct{ sent, retransmitted uint64 }

// tcpCounters adds up the counters of client and real servers.
func (d *Demo) tcpCounters() (sum tcpCounters, err error) {
	for _, h := range append(d.Topology.With(Client), d.Topology.With(RealServer)...) {
		err := d.lab.Do(h.Name, func() error {
			c, err := readTCPCounters()
			sum.sent += c.sent
			sum.retransmitted += c.retransmitted
			return err
		})
		if err != nil {
			return sum, fmt.Errorf("host %s: %w", h.Name, err)
		}
	}
	return sum, nil
}

// readTCPCounters reads the counters of the calling thread's network namespace.
func readTCPCounters() (c tcpCounters, err error) {
	const path = "/proc/thread-self/net/snmp"
	f, err := os.Open(path)
	if err != nil {
		return c, err
	}
	defer f.Close()
	if c, err = parseTCPCounters(f); err != nil {
		return c, fmt.Errorf("%s: %w", path, err)
	}
	return c, nil
}

// parseTCPCounters reads what /proc/net/snmp says of TCP: a line of names and one
// of their values.
func parseTCPCounters(from io.Reader) (c tcpCounters, err error) {
	var names []string
	for lines := bufio.NewScanner(from); lines.Scan(); {
		fields := strings.Fields(lines.Text())
		if len(fields) == 0 || fields[0] != "Tcp:" {
			continue
		}
		if names == nil {
			names = fields
			continue
		}
		for i, name := range names {
			if i >= len(fields) {
				break
			}
			switch name {
			case "OutSegs":
				c.sent, err = strconv.ParseUint(fields[i], 10, 64)
			case "RetransSegs":
				c.retransmitted, err = strconv.ParseUint(fields[i], 10, 64)
			}
			if err != nil {
				return c, fmt.Errorf("%s: %w", name, err)
			}
		}
		return c, nil
	}
	return c, errors.New("no values for Tcp")
}
