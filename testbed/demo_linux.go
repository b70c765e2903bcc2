package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
)

// Demo puts a director to work in one lab and checks what can be seen of it.
type Demo struct {
	Topology *Topology
	Options  Options
	Out      io.Writer
	Conns    int   // connections to open and hold; 0 means 60
	Bytes    int64 // of an upload and of a download; 0 means 100 MB
	// Sabotage is called when everything stands and is watched, before the
	// first check: tests break something there, and the demonstration must
	// notice.
	Sabotage func(*Lab) error

	lab      *Lab
	director *Process
	host     *Host // the director's
	failed   int
}

// What a Demo does when nothing else is said. 60 connections are a multiple of
// the sum of weights 1, 2 and 3.
const (
	demoConns = 60
	demoEchos = 12
	demoBytes = 100_000_000
)

// maxRetransmitted is how many segments in a hundred may be sent again before
// it counts as a storm. A sender that meets a full queue now and then, such as a
// TUN device's 500 packets, stays far below.
const maxRetransmitted = 5

// Limits of a Demo's patience.
const (
	answerTimeout   = 3 * time.Second
	transferTimeout = time.Minute
)

// ErrDemo says that a demonstration saw something that must not be.
var ErrDemo = errors.New("the demonstration failed")

// Run builds the lab, shows and checks, and takes the lab down.
func (d *Demo) Run(ctx context.Context) (err error) {
	if d.Conns == 0 {
		d.Conns = demoConns
	}
	if d.Bytes == 0 {
		d.Bytes = demoBytes
	}
	d.host = d.Topology.With(Director)[0]
	fmt.Fprintf(d.Out, "== %s: %s, link %s ==\n\n%s\n", d.Topology.Name, d.Topology.Title, d.Options.Link, d.Topology.Picture)
	start := time.Now()
	if d.lab, err = Build(d.Topology, d.Options); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.lab.Close()) }()
	if err := d.lab.StartServers(ctx); err != nil {
		return err
	}
	if d.director, err = d.lab.StartDirector(ctx); err != nil {
		return err
	}
	d.check(fmt.Sprintf("built in %.1f s: %d hosts, %d segments, %d processes",
		time.Since(start).Seconds(), len(d.Topology.Hosts), len(d.Topology.Segments), len(d.lab.procs)), nil)
	if err := d.show(ctx); err != nil {
		return err
	}
	fmt.Fprintln(d.Out)
	if d.failed > 0 {
		return fmt.Errorf("lab %s: %w: %d of its checks", d.Topology.Name, ErrDemo, d.failed)
	}
	return nil
}

// show makes the checks in order. Where no connection comes about, those that
// need one are left out.
func (d *Demo) show(ctx context.Context) error {
	taps, err := d.openTaps()
	if err != nil {
		return err
	}
	defer taps.close()
	before, err := d.tcpCounters()
	if err != nil {
		return err
	}
	if d.Sabotage != nil {
		if err := d.Sabotage(d.lab); err != nil {
			return fmt.Errorf("sabotage: %w", err)
		}
		d.director = d.lab.director()
	}
	d.check(d.oneAnswersARP(ctx))
	what, err := d.connections(ctx)
	d.check(what, err)
	if err == nil {
		d.check(d.datagrams(ctx))
		d.check(d.transfer(ctx, "upload"))
		d.check(d.transfer(ctx, "download"))
		d.check(taps.replyPath(d.Topology.Mode.Method))
	}
	d.check(taps.noResets())
	d.check(d.retransmissions(before))
	d.check("the director ended cleanly on SIGTERM", d.stopDirector())
	return ctx.Err()
}

// check prints how a check ended.
func (d *Demo) check(what string, err error) {
	verdict := "ok  "
	if err != nil {
		verdict = "FAIL"
		d.failed++
		if what != "" {
			what += ": "
		}
		what += err.Error()
	}
	lines := strings.Split(strings.TrimSpace(what), "\n")
	for i, line := range lines[1:] {
		if line != "" {
			lines[i+1] = "      " + line
		}
	}
	fmt.Fprintf(d.Out, "%s  %s\n", verdict, strings.Join(lines, "\n"))
}

// oneAnswersARP asks on the VIP's segment who has the VIP.
func (d *Demo) oneAnswersARP(ctx context.Context) (string, error) {
	segment := d.Topology.VIPSegment()
	var asker string
	for _, h := range d.Topology.Hosts {
		if h.Role == Director {
			continue
		}
		if _, ok := h.nic(segment); ok {
			asker = h.Name
			break
		}
	}
	nic, ok := d.host.nic(segment)
	if asker == "" || !ok {
		return "", fmt.Errorf("lab %s: the VIP's segment %q needs the director and a host that asks it", d.Topology.Name, segment)
	}
	ctx, stop := context.WithTimeout(ctx, answerTimeout*2)
	defer stop()
	out, err := d.lab.Output(ctx, asker, "check-arp", "--dev", segment, "--expect", nic.MAC.String(), d.Topology.VIP.String())
	what := fmt.Sprintf("ARP for the VIP %s is answered by %s alone, the director", d.Topology.VIP, nic.MAC)
	if err != nil {
		return "ARP for the VIP", fmt.Errorf("%w\n%s", err, strings.TrimSpace(out))
	}
	return what, nil
}

// connections opens connections, and shows the director's table while they
// are open.
func (d *Demo) connections(ctx context.Context) (string, error) {
	ctx, stop := context.WithTimeout(ctx, transferTimeout)
	defer stop()
	held, err := d.lab.holdOpen(ctx, d.target(d.Topology.HTTP), d.Conns, answerTimeout)
	what := fmt.Sprintf("%d connections: %s", d.Conns, d.shares(held.servers))
	if err != nil {
		return what, err
	}
	table, err := d.lab.Output(ctx, d.host.Name, "list")
	what += "\n\n" + strings.TrimRight(table, "\n ") + "\n"
	err = errors.Join(err, held.close())
	for _, h := range d.Topology.With(RealServer) {
		if got := held.servers[h.Name]; !fairShare(got, d.Conns, h.Weight, d.weights()) {
			err = errors.Join(err, fmt.Errorf("%s got %d connections, want %.4g by its weight", h.Name, got,
				float64(d.Conns*h.Weight)/float64(d.weights())))
		}
	}
	return what, err
}

// fairShare reports whether got of n is a server's share by its weight, give or
// take the one connection that a share need not be whole by.
func fairShare(got, n, weight, weights int) bool {
	off := got*weights - n*weight
	if n%weights == 0 {
		return off == 0
	}
	return max(off, -off) <= weights
}

// datagrams sends UDP datagrams: each server must get some.
func (d *Demo) datagrams(ctx context.Context) (string, error) {
	servers, err := d.lab.echo(ctx, d.target(d.Topology.Echo), demoEchos, answerTimeout)
	for _, h := range d.Topology.With(RealServer) {
		if err == nil && servers[h.Name] == 0 {
			err = fmt.Errorf("%s got none", h.Name)
		}
	}
	return fmt.Sprintf("%d UDP datagrams: %s", demoEchos, d.shares(servers)), err
}

// transfer makes an upload or a download.
func (d *Demo) transfer(ctx context.Context, kind string) (string, error) {
	ctx, stop := context.WithTimeout(ctx, transferTimeout)
	defer stop()
	all, err := d.lab.Transfer(ctx, kind, d.Bytes, 1)
	what := fmt.Sprintf("%s of %g MB", kind, float64(d.Bytes)/1e6)
	if err != nil {
		return what, err
	}
	t := all[0]
	return fmt.Sprintf("%s: %s in %.2f s (%.2f Gbit/s), SHA-256 %.16s... at both ends",
		what, t.Server, t.Seconds, float64(t.Bytes)*8/1e9/t.Seconds, t.Arrived), nil
}

// retransmissions tells how many segments had to be sent again since before.
func (d *Demo) retransmissions(before tcpCounters) (string, error) {
	after, err := d.tcpCounters()
	if err != nil {
		return "retransmissions", err
	}
	again, sent := after.retransmitted-before.retransmitted, after.sent-before.sent
	what := fmt.Sprintf("%d of %d TCP segments were retransmitted by client and servers", again, sent)
	if again > sent*maxRetransmitted/100 {
		return what, fmt.Errorf("more than %d %%: something on the way loses packets", maxRetransmitted)
	}
	return what, nil
}

// stopDirector ends the director as an operator does.
func (d *Demo) stopDirector() error {
	if !d.director.Running() {
		return fmt.Errorf("%s: is not running any more\n%s", d.director, d.director.Log())
	}
	return d.director.Stop()
}

// target returns the VIP with a service's port.
func (d *Demo) target(s Service) string { return d.Topology.Target(s) }

// Target returns the VIP with a service's port.
func (t *Topology) Target(s Service) string {
	return net.JoinHostPort(t.VIP.String(), strconv.Itoa(int(s.Port)))
}

// shares formats what each server got, in the topology's order.
func (d *Demo) shares(got map[string]int) string {
	var parts []string
	for _, h := range d.Topology.With(RealServer) {
		parts = append(parts, fmt.Sprintf("%s (weight %d) %d", h.Name, h.Weight, got[h.Name]))
	}
	return strings.Join(parts, ", ")
}

// weights returns the sum of the real servers' weights.
func (d *Demo) weights() (sum int) {
	for _, h := range d.Topology.With(RealServer) {
		sum += h.Weight
	}
	return sum
}

// nic returns the host's NIC on a segment.
func (h *Host) nic(segment string) (NIC, bool) {
	for _, n := range h.NICs {
		if n.Segment == segment {
			return n, true
		}
	}
	return NIC{}, false
}

// throughDirector reports whether replies of the method cross the director.
func throughDirector(m lvs.Method) bool { return m == lvs.Masq }
