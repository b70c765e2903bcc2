package control

import "strings"

// decodeReload reads how the file is loaded again.
func decodeReload(c *Config, drift, watch value) {
	if !drift.missing() {
		if s, ok := drift.text(); ok {
			c.KeepDrift = Drift(s) == DriftKeep
			if !c.KeepDrift && Drift(s) != DriftRestore {
				drift.wrong("%q is neither restore (a reload takes back what was changed by hand) nor keep (it leaves it, unless the file changed the same)", s)
			}
		}
	}
	if !watch.missing() {
		c.Watch, _ = watch.boolean()
	}
}

// Drift is what a reload of the file makes of what was changed by hand.
func (c *Config) Drift() Drift {
	if c.KeepDrift {
		return DriftKeep
	}
	return DriftRestore
}

// printReload writes what decodeReload reads.
func printReload(b *strings.Builder, c *Config) {
	if c.KeepDrift {
		b.WriteString("drift: keep\n")
	}
	if c.Watch {
		b.WriteString("watch: true\n")
	}
}
