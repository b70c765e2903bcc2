package main

import (
	"strings"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
	"pktdirector/lvs"
	"pktdirector/packet"
)

// newEvents publishes what a director's workers keep records of, which they do
// while somebody listens.
func newEvents(d *dataplane.Director) *control.Events {
	var e *control.Events
	e = control.NewEvents(func(kinds control.EventKind) {
		d.SetSnap(max(e.Snap(), filteredBytes))
		var what dataplane.Observed
		for kind, of := range map[control.EventKind]dataplane.Observed{
			control.DecisionEvents: dataplane.ObserveDecisions, control.StateEvents: dataplane.ObserveStates, control.DropEvents: dataplane.ObserveDrops, control.PacketEvents: dataplane.ObservePackets,
		} {
			if kinds&kind != 0 {
				what |= of
			}
		}
		d.Observe(what)
	})
	return e
}

// filteredBytes is how much of a packet an expression sees at least, however little of
// it a capture keeps.
const filteredBytes = 256

// publish hands over a worker's records. It copies them: what they become is made
// where they are listened to.
func publish(to *control.Events, w *dataplane.Worker) {
	if to.Wanted() == 0 {
		return // only the history keeps records
	}
	now := time.Now()
	if to.Wanted()&control.PacketEvents != 0 {
		publishPackets(to, w, now)
	}
	for _, d := range w.Decisions {
		about := control.Subject{Service: d.Service, Flow: d.Flow, Flags: packet.SYN}
		if d.Pick != nil {
			about.Server = d.Pick.Server
		}
		to.Publish(control.DecisionEvents, 1+len(d.Explanation.Candidates), &about, func() control.Event {
			return control.Event{Time: now, Kind: control.DecisionEvents.String(), Decision: decisionOf(&d)}
		})
	}
	for _, s := range w.States {
		about := control.Subject{
			Service: s.Service, Server: lvs.ServerKey{RIP: s.Dest, Port: s.DestPort}, State: s.After,
			Flow: packet.Flow{Proto: s.Proto, Src: s.Client, SrcPort: s.ClientPort, Dst: s.Virtual, DstPort: s.VirtualPort},
		}
		to.Publish(control.StateEvents, 1, &about, func() control.Event {
			return control.Event{Time: now, Kind: control.StateEvents.String(), State: stateOf(&s)}
		})
	}
	to.Missed(control.StateEvents, w.Missed)
	for _, d := range w.Drops {
		about := control.Subject{Service: d.Service, Server: d.Server, Flow: d.Flow, Flags: d.Flags, Bytes: d.Bytes, Verdict: d.Verdict.String()}
		to.Publish(control.DropEvents, 1, &about, func() control.Event {
			return control.Event{Time: now, Kind: control.DropEvents.String(), Drop: dropOf(&d)}
		})
	}
}

func flowOf(f packet.Flow) control.Flow {
	return control.Flow{Protocol: f.Proto.String(), Source: f.Src.String(), SourcePort: f.SrcPort, Destination: f.Dst.String(), DestinationPort: f.DstPort}
}

func decisionOf(d *dataplane.Decision) *control.Decision {
	e := &d.Explanation
	to := &control.Decision{
		ID: d.ID, Service: control.ServiceID(d.Service), Mark: d.Mark, Flow: flowOf(d.Flow), Found: d.Found.String(), Template: d.Template,
		Rule: e.Rule, Tie: e.Tie, Candidates: make([]control.Candidate, 0, len(e.Candidates)),
	}
	if d.Pick != nil {
		to.Picked = control.ServerID(d.Pick.Server)
	}
	for _, c := range e.Candidates {
		one := control.Candidate{Server: control.ServerID(c.Dest.Server), Weight: c.Weight, Active: c.Active, Inactive: c.InAct, Picked: c.Picked, Why: c.Why}
		if c.Score.Den > 0 {
			one.Score = &control.Score{Num: c.Score.Num, Den: c.Score.Den}
		}
		to.Candidates = append(to.Candidates, one)
	}
	return to
}

func stateOf(s *dataplane.StateChange) *control.StateChange {
	to := &control.StateChange{
		Flow:    flowOf(packet.Flow{Proto: s.Proto, Src: s.Client, SrcPort: s.ClientPort, Dst: s.Virtual, DstPort: s.VirtualPort}),
		Service: control.ServiceID(s.Service), Before: s.Before.String(), Began: s.Began, Ended: s.Ended,
	}
	if s.Dest.IsValid() {
		to.Server = control.ServerID(lvs.ServerKey{RIP: s.Dest, Port: s.DestPort})
	}
	if !s.Ended {
		to.After = s.After.String()
		to.Direction = map[bool]string{true: "request", false: "reply"}[s.Direction == conntrack.Request]
	}
	return to
}

func dropOf(d *dataplane.Drop) *control.Drop {
	to := &control.Drop{Verdict: d.Verdict.String(), Means: d.Verdict.Help(), Advice: d.Verdict.Advice(), Bytes: d.Bytes, Decision: d.Decision}
	if d.Service != (lvs.ServiceKey{}) {
		to.Service = control.ServiceID(d.Service)
	}
	if d.Server != (lvs.ServerKey{}) {
		to.Server = control.ServerID(d.Server)
	}
	if d.Flow.Src.IsValid() {
		f := flowOf(d.Flow)
		to.Flow = &f
	}
	if d.Flow.Proto == packet.TCP {
		to.Flags = tcpFlags(d.Flags)
	}
	return to
}

// tcpFlags writes flags as tcpdump does.
func tcpFlags(flags uint8) string {
	var b strings.Builder
	for _, f := range []struct {
		bit  uint8
		name byte
	}{{packet.SYN, 'S'}, {packet.FIN, 'F'}, {packet.RST, 'R'}, {packet.PSH, 'P'}, {packet.ACK, '.'}} {
		if flags&f.bit != 0 {
			b.WriteByte(f.name)
		}
	}
	return b.String()
}
