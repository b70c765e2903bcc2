package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"pktdirector/capture"
	"pktdirector/capture/judge"
	"pktdirector/capture/replay"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/modes/dr"
	"pktdirector/modes/fullnat"
	"pktdirector/modes/nat"
	"pktdirector/modes/tun"
	"pktdirector/packet"
	"pktdirector/sim"
)

// played is what a configuration would have done with a capture.
type played struct {
	Packets     uint64            `json:"packets"`
	LeftOut     uint64            `json:"left_out"` // sent by the director of the capture, or none of its packets
	Padded      uint64            `json:"padded,omitempty"`
	Connections int               `json:"connections"`
	Compared    int               `json:"compared"` // whose server the capture shows
	Same        int               `json:"same"`
	Picks       []playedPick      `json:"picks"`
	Table       string            `json:"table"`
	Stats       string            `json:"stats"`
	Verdicts    []control.Verdict `json:"verdicts"`

	byFlow map[packet.Flow][]int // picks, by the packet they were for
}

// playedPick is one scheduling decision.
type playedPick struct {
	Seconds  float64 `json:"seconds"`
	Packet   any     `json:"packet"`
	Client   string  `json:"client"`
	VIP      string  `json:"vip"`
	Server   string  `json:"server"` // empty: none was available
	Recorded string  `json:"recorded,omitempty"`

	explained string
	at        int64 // ns
}

// serverOf returns the server that a client's packet at a time in ns was sent to.
func (p *played) serverOf(f packet.Flow, at int64) string {
	list := p.byFlow[f]
	for i := len(list) - 1; i >= 0; i-- {
		if k := &p.Picks[list[i]]; k.at <= at {
			return k.Server
		}
	}
	return ""
}

// mostPicks bounds the decisions that are kept for printing.
const mostPicks = 100_000

// playFiles plays the files of one capture through the configuration c.
func playFiles(ctx context.Context, files []string, o *replayOptions, c *control.Config, report *judge.Report) (*played, error) {
	d := dataplane.New(dataplane.Options{Seed: 1, Decisions: true, Forwarders: dataplane.Forwarders{
		lvs.Masq: nat.Masq{}, lvs.FullNAT: fullnat.Both{}, lvs.Route: dr.Gateway{}, lvs.Tunnel: tun.New(1),
	}})
	if err := configure(d, c); err != nil {
		return nil, err
	}
	r, err := capture.Open(files, capture.Options{})
	if err != nil {
		return nil, err
	}
	defer r.Close()
	res := &played{Picks: []playedPick{}, byFlow: map[packet.Flow][]int{}}
	opts := replay.Options{Sent: report.DirectorSent, MAC: report.MAC, DIP: report.DIP, ServersSeen: report.ServersSeen()}
	for _, l := range c.Links {
		opts.Links = append(opts.Links, replay.Link{Name: l.Name, Layer3: l.Type != control.AFPacket, Addresses: l.Addresses})
	}
	var first int64
	left, err := newLeft(o.write, opts.Links)
	if err != nil {
		return nil, err
	}
	opts.Decided = func(dec *dataplane.Decision, rec *capture.Record) {
		res.decided(dec, rec, first, report, files, o)
		left.decided(dec)
	}
	if left != nil {
		opts.Left = left.packet
	}
	e, err := replay.New(d, c.Ruleset, opts)
	if err != nil {
		return nil, errors.Join(err, left.close())
	}
	var last int64
	err = eachRecord(ctx, r, func(rec *capture.Record) {
		if first == 0 {
			first = rec.Time
		}
		last = rec.Time
		left.begin(rec, files)
		e.Add(rec)
	})
	e.Finish(last)
	res.Packets, res.LeftOut, res.Padded = e.Played, e.Other, e.Padded
	list := &control.Commander{Director: d}
	res.Table, res.Stats = list.Do([]string{"-Ln"}, "").Stdout, list.Do([]string{"-Ln", "--stats"}, "").Stdout
	for _, v := range d.Verdicts() {
		if v.Count > 0 {
			res.Verdicts = append(res.Verdicts, control.Verdict{Name: v.Name, Count: v.Count, Help: v.Help})
		}
	}
	return res, errors.Join(err, left.close())
}

// packetName names a packet of several files.
func packetName(rec *capture.Record, files []string) string {
	return fmt.Sprintf("%s:%d", filepath.Base(files[rec.File]), rec.Number)
}

// decided notes a decision.
func (p *played) decided(d *dataplane.Decision, rec *capture.Record, first int64, report *judge.Report, files []string, o *replayOptions) {
	p.Connections++
	k := playedPick{Seconds: time.Duration(rec.Time - first).Seconds(), Packet: rec.Number,
		Client: packet.Endpoint(d.Flow.Src, d.Flow.SrcPort), VIP: packet.Endpoint(d.Flow.Dst, d.Flow.DstPort), Recorded: report.ServerOf(d.Flow, rec.Time), at: rec.Time}
	if len(files) > 1 {
		k.Packet = packetName(rec, files)
	}
	if d.Pick != nil {
		k.Server = d.Pick.Server.String()
	}
	if k.Recorded != "" {
		p.Compared++
		if k.Recorded == k.Server {
			p.Same++
		}
	}
	if o.explain {
		var b strings.Builder
		_ = sim.PrintDecision(&b, d) // a Builder takes all
		k.explained = b.String()
	}
	if len(p.Picks) < mostPicks {
		p.byFlow[d.Flow] = append(p.byFlow[d.Flow], len(p.Picks))
		p.Picks = append(p.Picks, k)
	}
}

// print writes what the configuration would have done.
func (p *played) print(w io.Writer, o *replayOptions) error {
	var b strings.Builder
	fmt.Fprintf(&b, "\nwith %s: %d packets played, %d left out, %d new connections", o.config, p.Packets, p.LeftOut, p.Connections)
	if p.Compared > 0 {
		fmt.Fprintf(&b, "; %d of %d got the server that the capture shows", p.Same, p.Compared)
	}
	fmt.Fprintln(&b)
	if p.Packets == 0 {
		fmt.Fprintln(&b, "note: no packet is for a virtual service of this configuration, or from one of its servers")
	}
	if p.Padded > 0 {
		fmt.Fprintf(&b, "note: %d packets were cut by the snaplen and are played with zeros at their end\n", p.Padded)
	}
	for i, k := range p.Picks {
		if o.list >= 0 && i >= o.list {
			fmt.Fprintf(&b, "... and %d more (--list -1 shows all)\n", p.Connections-i)
			break
		}
		server := k.Server
		if server == "" {
			server = "none"
		}
		fmt.Fprintf(&b, "%10.3f  %-28s %-24s %-24s %v", k.Seconds, k.Client, k.VIP, server, k.Packet)
		if k.Recorded != "" && k.Recorded != k.Server {
			fmt.Fprintf(&b, "  in the capture: %s", k.Recorded)
		}
		fmt.Fprintf(&b, "\n%s", k.explained)
	}
	fmt.Fprintf(&b, "\n%s\n%s\nverdicts:\n", p.Table, p.Stats)
	for _, v := range p.Verdicts {
		fmt.Fprintf(&b, "%10d  %-18s %s\n", v.Count, v.Name, v.Help)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// left writes what would have left a director, with comments: which packet of the
// capture it comes of, and why a new connection's server was chosen.
type left struct {
	file *os.File
	w    *capture.Writer
	err  error

	// Of the packet that is being played.
	id       uint64
	comments []string
}

// begin is told the packet that is played next.
func (l *left) begin(rec *capture.Record, files []string) {
	if l != nil {
		l.id = rec.Number
		l.comments = append(l.comments[:0], "from packet "+packetName(rec, files))
	}
}

// decided is told a decision about that packet.
func (l *left) decided(d *dataplane.Decision) {
	if l == nil {
		return
	}
	var b strings.Builder
	_ = sim.PrintDecision(&b, d) // a Builder takes all
	l.comments = append(l.comments, strings.TrimSpace(b.String()))
}

// newLeft creates the file; nil where none is wanted.
func newLeft(name string, links []replay.Link) (*left, error) {
	if name == "" {
		return nil, nil
	}
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	l := &left{file: f}
	if l.w, err = capture.NewWriter(f, capture.WriterOptions{Application: "pktdirector replay"}); err != nil {
		return nil, errors.Join(err, f.Close())
	}
	for _, link := range links {
		i := capture.Interface{Name: link.Name, LinkType: capture.Ethernet}
		if link.Layer3 {
			i.LinkType = capture.Raw
		}
		if _, err := l.w.AddInterface(i); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return l, nil
}

func (l *left) packet(p *packet.Packet, frame []byte, at int64) {
	if l.err == nil {
		l.err = l.w.Write(&capture.Packet{Time: at, Interface: p.Link, Data: frame, Direction: capture.Outgoing, PacketID: l.id, Comments: l.comments})
	}
}

// close completes the file.
func (l *left) close() error {
	if l == nil {
		return nil
	}
	return errors.Join(l.err, l.w.Finish(), l.file.Close())
}

// writeScenario makes a scenario of the capture and returns what is to be said.
func writeScenario(ctx context.Context, files []string, o *replayOptions, c *control.Config, report *judge.Report, res *played) (string, error) {
	var plans []judge.Plan
	if c != nil {
		plans = plansOf(&c.Ruleset)
	}
	id := strings.TrimSuffix(filepath.Base(o.scenario), filepath.Ext(o.scenario))
	s, err := replay.NewScenario(id, fmt.Sprintf("recorded from a capture of %d packets", report.Packets), report, plans)
	if err != nil {
		return "", err
	}
	if res != nil {
		s.ServerOf = res.serverOf
	}
	if o.anonymise {
		var key [capture.AnonymiserKeyLen]byte
		rand.Read(key[:])
		s.Anonymise = capture.NewAnonymiser(key, capture.SpecialPrefixes()...).Addr
	}
	r, err := capture.Open(files, capture.Options{})
	if err != nil {
		return "", err
	}
	defer r.Close()
	if err := eachRecord(ctx, r, s.Add); err != nil {
		return "", err
	}
	done, others, err := s.Finish()
	if err != nil {
		return "", err
	}
	b, err := done.Marshal()
	if err == nil {
		err = os.WriteFile(o.scenario, b, 0o644)
	}
	said := fmt.Sprintf("%s: %d events, checked by: pktdirector scenario check %s", o.scenario, len(done.Events), o.scenario)
	if others > 0 {
		said += fmt.Sprintf("\n%s: %d connections get another server here than in the capture, which the check will show: the scheduler, weights or the connections before the capture are not those of the capture's director", o.scenario, others)
	}
	return said, err
}

// plansOf are the services of a configuration.
func plansOf(rules *lvs.Ruleset) []judge.Plan {
	var plans []judge.Plan
	for _, s := range rules.Services {
		if s.Mark != 0 || len(s.Servers) == 0 {
			continue
		}
		first := s.Servers[0]
		p := judge.Plan{Protocol: s.Proto, VIP: s.VIP, Port: s.Port, Mode: first.Method.Short(), Scheduler: s.Scheduler, Persistent: s.Persist > 0}
		if first.Method == lvs.Tunnel {
			p.Tunnel = first.Tunnel.Type.String()
		}
		for _, rs := range s.Servers {
			p.Servers = append(p.Servers, judge.PlannedServer{Address: rs.RIP, Port: rs.Port, Weight: rs.Weight})
		}
		plans = append(plans, p)
	}
	return plans
}

// checkTwice refuses what has to be read twice and cannot be.
func checkTwice(files []string) error {
	if slices.Contains(files, "-") {
		return usageError(errors.New("standard input can be read once, and -c and --to-scenario read a capture twice: save it in a file first"))
	}
	for _, f := range files {
		if info, err := os.Stat(f); err == nil && !info.Mode().IsRegular() {
			return usageError(fmt.Errorf("%s is no regular file, and -c and --to-scenario read a capture twice: save it in one first", f))
		}
	}
	return nil
}
