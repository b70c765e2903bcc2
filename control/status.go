package control

import (
	"cmp"
	"slices"
	"time"

	"pktdirector/lvs"
	"pktdirector/packet"
)

// APIVersion is the version of the types below. Fields may be added without
// changing it.
const APIVersion = 1

// Status is the answer to GET /v1/status: all that is configured and counted,
// without the single connections.
type Status struct {
	Version   int         `json:"version"` // APIVersion
	PID       int         `json:"pid"`
	Started   time.Time   `json:"started"`
	TableSize int         `json:"table_size"` // hash buckets of the connection table, as ipvsadm shows them
	Table     TableState  `json:"table"`
	Services  []Service   `json:"services"`
	Links     []LinkState `json:"links"`
	Verdicts  []Verdict   `json:"verdicts"`
}

// TableState is how full the connection table is.
type TableState struct {
	Connections int    `json:"connections"`
	Templates   int    `json:"templates"` // of persistent services
	Max         int    `json:"max"`       // of each of the two: conn_max
	Evicted     uint64 `json:"evicted"`   // half-open and finished entries that made way for new ones
}

// Service is a virtual service with its destinations, newest first.
type Service struct {
	Protocol     string        `json:"protocol"` // TCP, UDP or SCTP; FWM for a firewall mark
	VIP          string        `json:"vip"`
	Port         uint16        `json:"port"`
	Mark         uint32        `json:"mark,omitempty"` // firewall mark
	IPv6         bool          `json:"ipv6,omitempty"` // of a firewall mark
	Scheduler    string        `json:"scheduler"`
	Flags        string        `json:"flags,omitempty"`           // of the scheduler, as ipvsadm -b takes them
	Persist      int64         `json:"persist,omitempty"`         // persistence timeout in seconds
	MaskBits     int           `json:"persist_mask,omitempty"`    // client addresses count as one by these bits; 0: all
	Netmask      string        `json:"persist_netmask,omitempty"` // in place of persist_mask where the mask is no prefix
	OnePacket    bool          `json:"one_packet,omitempty"`
	Stats        lvs.Stats     `json:"stats"`
	Rates        lvs.Stats     `json:"rates"` // a second, averaged as ipvsadm --rate shows them
	Destinations []Destination `json:"destinations"`
}

// Destination is a real server's live entry in a service.
type Destination struct {
	Address string    `json:"address"`
	Port    uint16    `json:"port"`
	Method  string    `json:"method"` // Masq, Route or Tunnel
	Weight  int64     `json:"weight"`
	Active  int64     `json:"active"`   // ActiveConn
	InAct   int64     `json:"inactive"` // InActConn
	Stats   lvs.Stats `json:"stats"`
	Rates   lvs.Stats `json:"rates"` // a second

	Persistent int64  `json:"persistent,omitempty"`      // clients bound by templates
	Upper      uint32 `json:"upper_threshold,omitempty"` // connections; 0: none
	Lower      uint32 `json:"lower_threshold,omitempty"`
}

// LinkState is a link with what it counted since the start. The counters'
// names are those of the link's own statistics.
type LinkState struct {
	Name     string            `json:"name"`
	Type     LinkType          `json:"type"`
	MAC      string            `json:"mac,omitempty"`
	MTU      int               `json:"mtu"` // bytes
	VLAN     uint16            `json:"vlan,omitempty"`
	Counters map[string]uint64 `json:"counters"`
}

// Verdict counts the packets that ended in one way.
type Verdict struct {
	Name  string `json:"name"`
	Count uint64 `json:"count"`
	Help  string `json:"help"`
}

// Connection is one entry of the connection table, as GET /v1/connections
// lists them.
type Connection struct {
	Protocol        string `json:"protocol"`
	State           string `json:"state"`
	Client          string `json:"client"`
	ClientPort      uint16 `json:"client_port"`
	VIP             string `json:"vip"`
	Port            uint16 `json:"port"`
	Destination     string `json:"destination"`
	DestinationPort uint16 `json:"destination_port"`
	Expires         int64  `json:"expires"` // seconds until it expires
}

// ServicesOf converts the director's listing.
func ServicesOf(from []lvs.ServiceStatus) []Service {
	to := make([]Service, 0, len(from))
	for _, s := range from {
		c := Service{
			Protocol: s.Service.Proto.String(), VIP: s.Service.VIP.String(), Port: s.Service.Port,
			Mark: s.Service.Mark, IPv6: s.Service.V6,
			Scheduler: s.Scheduler, Flags: flagNames(s.Scheduler, s.Flags), Persist: int64(s.Persist / time.Second), MaskBits: s.MaskBits,
			OnePacket: s.OnePacket, Stats: s.Stats, Rates: s.Rates, Destinations: make([]Destination, 0, len(s.Destinations)),
		}
		if s.Service.Mark != 0 {
			c.Protocol, c.VIP = markProtocol, ""
		}
		if s.Netmask.IsValid() {
			c.Netmask = s.Netmask.String()
		}
		for _, d := range s.Destinations {
			c.Destinations = append(c.Destinations, Destination{
				Address: d.Server.RIP.String(), Port: d.Server.Port, Method: d.Method.String(),
				Weight: d.Weight, Active: d.Active, InAct: d.InAct, Stats: d.Stats, Rates: d.Rates,
				Persistent: d.Persistent, Upper: d.Upper, Lower: d.Lower,
			})
		}
		to = append(to, c)
	}
	return to
}

// markProtocol stands in place of a protocol where a firewall mark is the
// service.
const markProtocol = "FWM"

// sortServices puts services and their destinations in the order of
// "ipvsadm -Ln": by firewall mark (as an int), IP version, protocol, address and port; destinations by
// address and port (libipvs, ipvs_cmp_services and ipvs_cmp_dests). The
// comparison is of whole numbers here; libipvs takes the difference in an int,
// which puts addresses more than 2^31 apart the other way round. With newest
// the destinations stay as they are, newest first.
func sortServices(in []Service, newest bool) []Service {
	out := slices.Clone(in)
	slices.SortStableFunc(out, func(a, b Service) int {
		x, y := parseAddr(a.VIP), parseAddr(b.VIP)
		return cmp.Or(cmp.Compare(int32(a.Mark), int32(b.Mark)), boolCmp(!a.IPv6, !b.IPv6), boolCmp(x.Is4(), y.Is4()), cmp.Compare(protoNumber(a.Protocol), protoNumber(b.Protocol)),
			addrCmp(x, y), cmp.Compare(a.Port, b.Port))
	})
	if newest {
		return out
	}
	for i := range out {
		out[i].Destinations = slices.Clone(out[i].Destinations)
		slices.SortStableFunc(out[i].Destinations, func(a, b Destination) int {
			return cmp.Or(addrCmp(parseAddr(a.Address), parseAddr(b.Address)), cmp.Compare(a.Port, b.Port))
		})
	}
	return out
}

// boolCmp sorts true first.
func boolCmp(a, b bool) int {
	switch {
	case a == b:
		return 0
	case a:
		return -1
	}
	return 1
}

func addrCmp(a, b packet.Addr) int {
	switch {
	case a.Less(b):
		return -1
	case b.Less(a):
		return 1
	}
	return 0
}

func protoNumber(name string) packet.Proto {
	for _, p := range []packet.Proto{packet.TCP, packet.UDP, packet.SCTP} {
		if p.String() == name {
			return p
		}
	}
	return 0
}
