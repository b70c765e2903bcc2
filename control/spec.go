package control

import (
	"encoding/json"
	"strconv"
	"strings"
	"time"

	"pktdirector/lvs"
)

// ServiceSpec is a virtual service as the configuration file writes it under
// services, with the same keys, rules and defaults. PUT takes it, and it can be
// read as spec of each service.
type ServiceSpec struct {
	VIP         string       `json:"vip,omitempty"`
	Protocol    string       `json:"protocol,omitempty"` // tcp, udp or sctp
	Port        *uint16      `json:"port,omitempty"`     // 0: every port
	FWMark      uint32       `json:"fwmark,omitempty"`   // in place of the three
	IPv6        bool         `json:"ipv6,omitempty"`     // of a firewall mark
	Scheduler   string       `json:"scheduler,omitempty"`
	Flags       []string     `json:"flags,omitempty"`
	Timeout     int64        `json:"persistence_timeout,omitempty"`     // seconds
	Granularity any          `json:"persistence_granularity,omitempty"` // a netmask, or IPv6's prefix length as a number
	Engine      string       `json:"persistence_engine,omitempty"`
	OnePacket   bool         `json:"ops,omitempty"`
	Method      string       `json:"method,omitempty"` // of servers that name none
	ClampMSS    bool         `json:"clamp_mss,omitempty"`
	Sources     []string     `json:"sources,omitempty"`
	SourcePorts string       `json:"source_ports,omitempty"` // 1024-65535
	TOA         bool         `json:"toa,omitempty"`
	Servers     []ServerSpec `json:"servers,omitzero"`
}

// ServerSpec is a real server as the configuration file writes it.
type ServerSpec struct {
	Address string      `json:"address,omitempty"`
	Port    *uint16     `json:"port,omitempty"`   // the service's where it is left out
	Weight  *int        `json:"weight,omitempty"` // 1 where it is left out
	Method  string      `json:"method,omitempty"` // nat, dr, tun or fullnat
	Upper   uint32      `json:"uthreshold,omitempty"`
	Lower   uint32      `json:"lthreshold,omitempty"`
	Tunnel  *TunnelSpec `json:"tunnel,omitempty"`
}

// TunnelSpec is a tunnel to a real server as the configuration file writes it.
type TunnelSpec struct {
	Type     string `json:"type"`
	Port     uint16 `json:"port,omitempty"`
	Checksum string `json:"checksum,omitempty"`
}

// specOf writes a service without its servers.
func specOf(s *lvs.VirtualService) ServiceSpec {
	spec := ServiceSpec{
		FWMark: s.Mark, IPv6: s.V6, Scheduler: s.Scheduler, Timeout: int64(s.Persist / time.Second), Engine: s.Engine,
		OnePacket: s.OnePacket, ClampMSS: s.ClampMSS, TOA: s.Sources.TOA,
	}
	if s.Mark == 0 {
		port := s.Port
		spec.VIP, spec.Protocol, spec.Port = s.VIP.String(), strings.ToLower(s.Proto.String()), &port
	}
	if s.Flags != 0 {
		spec.Flags = strings.Split(flagNames(s.Scheduler, s.Flags), ",")
	}
	if s.MaskBits != 0 || s.Netmask.IsValid() {
		text := granularity(s)
		if n, err := strconv.Atoi(text); err == nil {
			spec.Granularity = n
		} else {
			spec.Granularity = text
		}
	}
	for _, a := range s.Sources.Addrs {
		spec.Sources = append(spec.Sources, a.String())
	}
	if s.Sources.Ports != (lvs.PortRange{}) {
		spec.SourcePorts = s.Sources.Ports.String()
	}
	return spec
}

func serverSpecOf(rs *lvs.RealServer) ServerSpec {
	port, weight := rs.Port, rs.Weight
	spec := ServerSpec{Address: rs.RIP.String(), Port: &port, Weight: &weight, Method: rs.Method.Short(), Upper: rs.Upper, Lower: rs.Lower}
	if rs.Method == lvs.Tunnel && rs.Tunnel.Type != lvs.IPIP {
		spec.Tunnel = &TunnelSpec{Type: rs.Tunnel.Type.String(), Port: rs.Tunnel.Port, Checksum: rs.Tunnel.Checksum.String()}
	}
	return spec
}

// wholeSpec writes a service with its servers.
func wholeSpec(s *lvs.VirtualService) ServiceSpec {
	spec := specOf(s)
	for i := range s.Servers {
		spec.Servers = append(spec.Servers, serverSpecOf(&s.Servers[i]))
	}
	return spec
}

// specJSON is a spec as the members of a JSON object.
func specJSON(spec any) map[string]json.RawMessage {
	members := map[string]json.RawMessage{}
	if text, err := json.Marshal(spec); err == nil {
		_ = json.Unmarshal(text, &members) // an object, as it was written
	}
	return members
}
