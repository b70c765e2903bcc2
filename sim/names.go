package sim

import (
	"net/netip"

	"pktdirector/control"
)

// names are what the network's hosts and some ports are called.
func names() *control.Names {
	return control.StaticNames(map[string]netip.Addr{
		"vip1.example.test":  netip.MustParseAddr("192.0.2.10"),
		"vip2.example.test":  netip.MustParseAddr("192.0.2.11"),
		"vip6.example.test":  netip.MustParseAddr("2001:db8:f::10"),
		"rs1.example.test":   netip.MustParseAddr("10.2.0.1"),
		"rs2.example.test":   netip.MustParseAddr("10.2.0.2"),
		"rs1-6.example.test": netip.MustParseAddr("2001:db8:2::1"),
		"localhost":          netip.MustParseAddr("127.0.0.1"),
	}, tcpPorts(), udpPorts())
}

// tcpPorts and udpPorts are names of well-known ports as Debian has them, so that
// a scenario means the same on every host.
func tcpPorts() map[string]uint16 {
	return map[string]uint16{
		"echo": 7, "discard": 9, "daytime": 13, "chargen": 19, "ftp-data": 20, "ftp": 21, "ssh": 22, "telnet": 23, "smtp": 25,
		"time": 37, "whois": 43, "tacacs": 49, "domain": 53, "gopher": 70, "finger": 79, "http": 80, "kerberos": 88, "pop3": 110,
		"sunrpc": 111, "imap2": 143, "snmp": 161, "snmp-trap": 162, "bgp": 179, "ldap": 389, "https": 443, "microsoft-ds": 445,
		"submissions": 465, "submission": 587, "ldaps": 636, "domain-s": 853, "rsync": 873, "ftps-data": 989, "ftps": 990,
		"telnets": 992, "imaps": 993, "pop3s": 995, "socks": 1080, "openvpn": 1194, "ms-sql-s": 1433, "radius": 1812,
		"radius-acct": 1813, "nfs": 2049, "iscsi-target": 3260, "mysql": 3306, "sip": 5060, "sip-tls": 5061, "postgresql": 5432,
		"amqp": 5672, "x11": 6000, "redis": 6379, "http-alt": 8080,
	}
}

func udpPorts() map[string]uint16 {
	return map[string]uint16{
		"echo": 7, "discard": 9, "daytime": 13, "chargen": 19, "time": 37, "tacacs": 49, "domain": 53, "bootps": 67, "bootpc": 68,
		"tftp": 69, "kerberos": 88, "sunrpc": 111, "ntp": 123, "snmp": 161, "snmp-trap": 162, "ldap": 389, "https": 443,
		"isakmp": 500, "syslog": 514, "ldaps": 636, "domain-s": 853, "openvpn": 1194, "radius": 1812, "radius-acct": 1813,
		"nfs": 2049, "sip": 5060, "sip-tls": 5061,
	}
}

// links are the director's interfaces.
func links() []string { return []string{"lo", "cli0", "rs0"} }
