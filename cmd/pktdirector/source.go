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
	config   *control.Config // of the start
	links    []dataplane.Link
	began    time.Time // the moment of engine time 0: of one that was restored, before started
	started  time.Time // the process
	events   *control.Events
	kept     *snapshots // nil: none are
	control.Admin
	control.Reloader
	control.Upgrader
}

// loaded is the configuration file as it was loaded last.
func (s *source) loaded() *control.Config {
	if r, ok := s.Reloader.(*reloader); ok {
		return r.loaded.Load()
	}
	return s.config
}

// Events implements control.Source.
func (s *source) Events() *control.Events { return s.events }

// Status implements control.Source.
func (s *source) Status() control.Status {
	status := control.Status{
		PID: os.Getpid(), Started: s.started, TableSize: control.DefaultTableSize,
		Table:    control.TableState(s.director.Table()),
		Services: control.ServicesOf(s.director.Status()),
		Snapshot: s.kept.State(),
		Links:    []control.LinkState{}, Verdicts: []control.Verdict{},
	}
	status.Stats, status.Rates = s.director.Totals()
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
