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
	Stats     lvs.Stats   `json:"stats"` // of all services, removed ones too
	Rates     lvs.Stats   `json:"rates"` // a second
	Links     []LinkState `json:"links"`
	Verdicts  []Verdict   `json:"verdicts"`

	Snapshot *SnapshotState `json:"snapshot,omitempty"` // none: none is kept
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
	Engine       string        `json:"persist_engine,omitempty"`  // ipvsadm --pe
	OnePacket    bool          `json:"one_packet,omitempty"`
	Stats        lvs.Stats     `json:"stats"`
	Rates        lvs.Stats     `json:"rates"` // a second, averaged as ipvsadm --rate shows them
	Destinations []Destination `json:"destinations"`
}

// Destination is a real server's live entry in a service.
type Destination struct {
	Address string    `json:"address"`
	Port    uint16    `json:"port"`
	Method  string    `json:"method"` // Masq, Route, Tunnel or FullNat
	Weight  int64     `json:"weight"`
	Active  int64     `json:"active"`   // ActiveConn
	InAct   int64     `json:"inactive"` // InActConn
	Stats   lvs.Stats `json:"stats"`
	Rates   lvs.Stats `json:"rates"` // a second

	Tunnel *TunnelState `json:"tunnel,omitempty"` // of method Tunnel

	Persistent int64  `json:"persistent,omitempty"`      // clients bound by templates
	Upper      uint32 `json:"upper_threshold,omitempty"` // connections; 0: none
	Lower      uint32 `json:"lower_threshold,omitempty"`
}

// TunnelState is the tunnel to a real server of the tunnelling method, in
// ipvsadm's words.
type TunnelState struct {
	Type     string `json:"type"`               // ipip, gue or gre
	Port     uint16 `json:"port,omitempty"`     // UDP port, of gue
	Checksum string `json:"checksum,omitempty"` // nocsum, csum or remcsum, of gue and gre
}

// tunnelState converts a tunnel; nil for other methods.
func tunnelState(m lvs.Method, t lvs.TunnelInfo) *TunnelState {
	if m != lvs.Tunnel {
		return nil
	}
	s := &TunnelState{Type: t.Type.String(), Port: t.Port}
	if t.Type != lvs.IPIP {
		s.Checksum = t.Checksum.String()
	}
	return s
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

// ServicesOf converts the director's listing.
func ServicesOf(from []lvs.ServiceStatus) []Service {
	to := make([]Service, 0, len(from))
	for _, s := range from {
		c := Service{
			Protocol: s.Service.Proto.String(), VIP: s.Service.VIP.String(), Port: s.Service.Port,
			Mark: s.Service.Mark, IPv6: s.Service.V6,
			Scheduler: s.Scheduler, Flags: flagNames(s.Scheduler, s.Flags), Persist: int64(s.Persist / time.Second), MaskBits: s.MaskBits,
			Engine: s.Engine, OnePacket: s.OnePacket, Stats: s.Stats, Rates: s.Rates, Destinations: make([]Destination, 0, len(s.Destinations)),
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
				Tunnel:     tunnelState(d.Method, d.Tunnel),
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
// address and port. IPv4 addresses are compared by their difference in 32 bits
// with a sign, as ipvsadm does it: 192.0.2.1 stands before 10.0.0.1. With newest the
// destinations stay as they are, newest first.
func sortServices(in []Service, newest bool) []Service {
	out := slices.Clone(in)
	mergeSort(out, func(a, b Service) int {
		x, y := parseAddr(a.VIP), parseAddr(b.VIP)
		return cmp.Or(cmp.Compare(int32(a.Mark), int32(b.Mark)), boolCmp(!a.IPv6, !b.IPv6), boolCmp(x.Is4(), y.Is4()), cmp.Compare(protoNumber(a.Protocol), protoNumber(b.Protocol)),
			addrCmp(x, y), cmp.Compare(a.Port, b.Port))
	})
	if newest {
		return out
	}
	for i := range out {
		out[i].Destinations = slices.Clone(out[i].Destinations)
		mergeSort(out[i].Destinations, func(a, b Destination) int {
			return cmp.Or(addrCmp(parseAddr(a.Address), parseAddr(b.Address)), cmp.Compare(a.Port, b.Port))
		})
	}
	return out
}

// mergeSort sorts stably, always by the same steps: halves first, then what
// they make. The order of addresses is no order of a line (a before b before c
// before a), so the result depends on the steps, and these are the C library's.
func mergeSort[T any](list []T, compare func(a, b T) int) {
	if len(list) < 2 {
		return
	}
	left, right := slices.Clone(list[:len(list)/2]), slices.Clone(list[len(list)/2:])
	mergeSort(left, compare)
	mergeSort(right, compare)
	for i := range list {
		if len(right) == 0 || len(left) > 0 && compare(left[0], right[0]) <= 0 {
			list[i], left = left[0], left[1:]
			continue
		}
		list[i], right = right[0], right[1:]
	}
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
	case a.Is4() && b.Is4():
		return int(int32(a.V4() - b.V4()))
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
