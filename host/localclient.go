package host

import (
	"fmt"
	"strings"
)

// LocalClients tells that this host is no client of its own director: packets
// that it makes itself come in by no link. Its connections fail, or meet its own
// sockets where it has the VIP. ok is false where there is no VIP.
func LocalClients(p Plan) (f Finding, ok bool) {
	var vips []string
	for _, vip := range VIPs(p.Rules) {
		vips = append(vips, vip.String())
	}
	const shown = 3
	if more := len(vips) - shown; more > 0 {
		vips = append(vips[:shown], fmt.Sprintf("%d more", more))
	}
	return Finding{
		Severity: Note,
		What:     fmt.Sprintf("local client: what this host itself sends to %s is not balanced, since it comes in by no link", strings.Join(vips, ", ")),
		Remedy:   "try the services from another machine, or from a network namespace that has its own way to the director",
	}, len(vips) > 0
}
