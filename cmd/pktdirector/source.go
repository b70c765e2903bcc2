package main

import (
	"encoding/json"
	"os"
	"time"

	"pktdirector/control"
	"pktdirector/dataplane"
)

// source shows a running director to the status API.
type source struct {
	director *dataplane.Director
	config   *control.Config
	links    []dataplane.Link
	began    time.Time // the engine's time 0
}

// Status implements control.Source.
func (s *source) Status() control.Status {
	status := control.Status{
		PID: os.Getpid(), Started: s.began, TableSize: control.DefaultTableSize,
		Table:    control.TableState(s.director.Table()),
		Services: control.ServicesOf(s.director.Status()),
		Links:    []control.LinkState{}, Verdicts: []control.Verdict{},
	}
	for i, l := range s.links {
		info := l.Info()
		state := control.LinkState{Name: info.Name, Type: s.config.Links[i].Type, MTU: info.MTU, VLAN: info.VLAN, Counters: counters(l.Stats())}
		if !info.Layer3 {
			state.MAC = info.MAC.String()
		}
		status.Links = append(status.Links, state)
	}
	for _, v := range s.director.Verdicts() {
		status.Verdicts = append(status.Verdicts, control.Verdict{Name: v.Name, Count: v.Count, Help: v.Help})
	}
	return status
}

// counters names a link's counters as their JSON does.
func counters(s dataplane.LinkStats) map[string]uint64 {
	named := map[string]uint64{}
	if b, err := json.Marshal(s); err == nil {
		_ = json.Unmarshal(b, &named) // all fields are counters
	}
	return named
}

// Connections implements control.Source.
func (s *source) Connections(yield func(control.Connection) bool) {
	now := time.Since(s.began)
	s.director.Conns(func(c dataplane.ConnStatus) bool {
		return yield(control.Connection{
			Protocol: control.ProtocolName(c.Proto), State: c.State.String(),
			Client: c.Client.String(), ClientPort: c.ClientPort, VIP: c.Virtual.String(), Port: c.VirtualPort,
			Destination: c.Dest.String(), DestinationPort: c.DestPort,
			Expires: int64(max(c.Expires-now, 0) / time.Second),
		})
	})
}
