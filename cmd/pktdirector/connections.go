package main

import (
	"fmt"
	"time"

	"pktdirector/conntrack"
	"pktdirector/control"
	"pktdirector/dataplane"
)

// Connections implements control.Source.
func (s *source) Connections(f conntrack.Filter, yield func(control.Connection) bool) {
	now := s.director.Now()
	s.director.SelectConns(f)(func(c dataplane.ConnStatus) bool { return yield(listed(c, now)) })
}

// listed is a connection as the API shows it.
func listed(c dataplane.ConnStatus, now time.Duration) control.Connection {
	seconds := func(d time.Duration) int64 { return int64(max(d, 0) / time.Second) }
	l := control.Connection{
		Protocol: control.ProtocolName(c.Proto), State: c.State.String(),
		Client: c.Client.String(), ClientPort: c.ClientPort, VIP: c.Virtual.String(), Port: c.VirtualPort,
		Destination: c.Dest.String(), DestinationPort: c.DestPort, Expires: seconds(c.Expires - now),
		Method: c.Method.String(), Template: c.Template, Age: seconds(now - c.Began), Idle: seconds(now - c.Last),
	}
	if c.SourcePort != 0 {
		l.Source, l.SourcePort = c.Source.String(), c.SourcePort
	}
	if !c.Template {
		l.Requests = &control.Traffic{Packets: c.Requests.Packets, Bytes: c.Requests.Bytes}
	}
	if c.RepliesSeen {
		l.Replies = &control.Traffic{Packets: c.Replies.Packets, Bytes: c.Replies.Bytes}
	}
	return l
}

// EndConnections implements control.Admin.
func (a *administration) EndConnections(who string, f conntrack.Filter, dry bool) (control.Ended, error) {
	if err := a.lock(); err != nil {
		return control.Ended{}, err
	}
	defer a.mu.Unlock()
	connections, templates := a.director.EndConns(f, dry)
	if !dry {
		a.publish(who, []string{fmt.Sprintf("%d connections and %d templates ended", connections, templates)}, "")
		a.log.Info("connections ended", "by", who, "filter", control.ConnQuery{Filter: f}.Values().Encode(), "connections", connections, "templates", templates)
	}
	return control.Ended{Connections: connections, Templates: templates, DryRun: dry}, nil
}
