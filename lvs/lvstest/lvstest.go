// Package lvstest has values of package lvs for tests.
package lvstest

import "pktdirector/lvs"

// Tunnels returns all kinds of tunnels, by name. Those of GUE lead to the UDP port
// that is registered for it.
func Tunnels() map[string]lvs.TunnelInfo {
	return map[string]lvs.TunnelInfo{
		"ipip":        {},
		"gre":         {Type: lvs.GRE},
		"gre csum":    {Type: lvs.GRE, Checksum: lvs.Checksum},
		"gue":         {Type: lvs.GUE, Port: 6080},
		"gue csum":    {Type: lvs.GUE, Port: 6080, Checksum: lvs.Checksum},
		"gue remcsum": {Type: lvs.GUE, Port: 6080, Checksum: lvs.RemoteChecksum},
	}
}
