package host

import (
	"fmt"
	"slices"

	"pktdirector/lvs"
)

// marks tells of services by firewall mark that no packet belongs to.
func (c *checker) marks() {
	for _, s := range c.Rules.Services {
		if s.Mark != 0 && !slices.ContainsFunc(c.Rules.Marks, func(r lvs.MarkRule) bool { return r.Mark == s.Mark }) {
			c.find(Warning, fmt.Sprintf("write one with fwmark: %d", s.Mark), "service %s: no rule under marks gives its mark, so no packet belongs to it", s.ServiceKey)
		}
	}
}
