package control

import (
	"fmt"

	"pktdirector/lvs"
)

// ipvsadm fills in defaults for what a command line does not name, in edits as in
// new entries: -e without a method means -g. Its exit code and its words are the same
// all the same, so what was lost by it is told beside them.

// editedServer tells what an -e that was carried out changed without naming it.
func editedServer(cmd *Command, was *lvs.DestinationStatus) []string {
	var told []string
	lost := func(option, what string, before, after any) {
		told = append(told, fmt.Sprintf("%s of %s: %s was %v and is %v now, since ipvsadm -e takes its default where %s is not given",
			cmd.Server.ServerKey, cmd.Service.ServiceKey, what, before, after, option))
	}
	if now := cmd.Server.Method; !cmd.given["forwarding-method"] && was.Method != now {
		lost("-g, -i or -m", "the forwarding method", was.Method, now)
	}
	if now := cmd.Server.Weight; !cmd.given["weight"] && was.Weight != int64(now) {
		lost("-w", "the weight", was.Weight, now)
	}
	if now := cmd.Server.Upper; !cmd.given["u-threshold"] && was.Upper != now {
		lost("-x", "the upper threshold", was.Upper, now)
	}
	if now := cmd.Server.Lower; !cmd.given["l-threshold"] && was.Lower != now {
		lost("-y", "the lower threshold", was.Lower, now)
	}
	if now := cmd.Server.Tunnel; !cmd.given["tun-type"] && was.Method == lvs.Tunnel && cmd.Server.Method == lvs.Tunnel && was.Tunnel != now {
		lost("--tun-type", "the tunnel", was.Tunnel.Type, now.Type)
	}
	return told
}

// editedService tells what an -E that was carried out changed without naming it.
func editedService(cmd *Command, was *lvs.ServiceStatus) []string {
	var told []string
	s := &cmd.Service
	lost := func(option, what string, before, after any) {
		told = append(told, fmt.Sprintf("%s: %s was %v and is %v now, since ipvsadm -E takes its default where %s is not given",
			s.ServiceKey, what, before, after, option))
	}
	if !cmd.given["scheduler"] && was.Scheduler != s.Scheduler {
		lost("-s", "the scheduler", was.Scheduler, s.Scheduler)
	}
	if !cmd.given["persistent"] && was.Persist != s.Persist {
		lost("-p", "the persistence timeout", was.Persist, "none")
	}
	if !cmd.given["netmask"] && s.Persist != 0 && (was.MaskBits != s.MaskBits || was.Netmask != s.Netmask) {
		lost("-M", "the persistence mask", maskText(was), "none")
	}
	if !cmd.given["ops"] && was.OnePacket {
		lost("-o", "one-packet scheduling", "on", "off")
	}
	if !cmd.given["sched-flags"] && was.Flags != 0 {
		lost("-b", "the scheduler's flags", flagNames(was.Scheduler, was.Flags), "none")
	}
	if !cmd.given["pe"] && was.Engine != s.Engine {
		lost("--pe", "the persistence engine", was.Engine, "none")
	}
	return told
}

// maskText writes a persistence mask as -M takes it.
func maskText(s *lvs.ServiceStatus) string {
	written := lvs.VirtualService{ServiceKey: s.Service, MaskBits: s.MaskBits, Netmask: s.Netmask}
	if s.MaskBits == 0 && !s.Netmask.IsValid() {
		return "none"
	}
	return granularity(&written)
}
