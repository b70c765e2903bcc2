package testbed

// Wire builds a lab's machines and cables, and gives no host its role yet.
func Wire(t *Topology) (*Lab, error) {
	l := &Lab{Topology: t, opts: Options{Program: Self, Link: AFPacket}, machines: map[string]*machine{}}
	return l, l.wire()
}

// Configure gives a host its role.
func (l *Lab) Configure(h *Host) error { return l.configure(h) }

// SwitchName is the machine that has the bridges.
const SwitchName = switchName
