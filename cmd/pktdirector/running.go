package main

import (
	"cmp"
	"slices"
	"strconv"
	"time"

	"pktdirector/control"
	"pktdirector/lvs"
)

// Config implements control.Source: links, routes and the like as the file says, all
// else as it runs. Services of the file keep its order.
func (s *source) Config() control.Config {
	file := s.loaded()
	c := *file
	c.Ruleset = s.director.Ruleset()
	place := map[lvs.ServiceKey]int{}
	for i := range file.Ruleset.Services {
		place[file.Ruleset.Services[i].ServiceKey] = i - len(file.Ruleset.Services) // before those that the file does not have
	}
	slices.SortStableFunc(c.Ruleset.Services, func(a, b lvs.VirtualService) int {
		return cmp.Compare(place[a.ServiceKey], place[b.ServiceKey])
	})
	c.Standby = s.Standby()
	c.Sysctl = nil
	for _, changed := range s.director.Tunables().Changed() {
		c.Sysctl = append(c.Sysctl, control.Sysctl{Name: changed.Name, Value: strconv.Itoa(changed.Value)})
	}
	c.Timeouts = control.Timeouts{}
	tcp, fin, udp := s.director.Timeouts()
	for _, t := range []struct {
		is, usual time.Duration
		to        *time.Duration
	}{{tcp, control.DefaultTCP, &c.Timeouts.TCP}, {fin, control.DefaultTCPFin, &c.Timeouts.TCPFin}, {udp, control.DefaultUDP, &c.Timeouts.UDP}} {
		if t.is != t.usual {
			*t.to = t.is
		}
	}
	return c
}
