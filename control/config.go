package control

import (
	"fmt"
	"io"
	"net/netip"
	"os"

	"pktdirector/lvs"
)

// DefaultSocket is where the status API listens unless the configuration says
// otherwise.
const DefaultSocket = "/run/pktdirector/pktdirector.sock"

// Config is what a configuration file says.
type Config struct {
	Links   []Link
	Routes  []Route
	Control string // path of the API's unix socket
	API     TCP    // where it listens beside that
	Standby bool   // begin by standing by: another director is in charge
	Metrics string // address and port where Prometheus may ask; empty: nowhere
	// KeepDrift: a reload leaves what was changed by hand (drift: keep).
	KeepDrift bool
	Watch     bool // reload when the file changes
	Snapshot  Snapshot
	// Sysctl and Timeouts change the director's defaults.
	Sysctl   []Sysctl
	Timeouts Timeouts
	Ruleset  lvs.Ruleset
}

// LinkType is how the director reaches an interface.
type LinkType string

// The kinds of live links.
const (
	AFPacket LinkType = "afpacket" // a network card, read and written by AF_PACKET
	Tundev   LinkType = "tundev"   // a TUN device that the host routes the VIPs into
	Local    LinkType = "local"    // a TUN device by which the host itself gets requests, as a real server
)

// Link is one interface the director works on.
type Link struct {
	Name      string
	Type      LinkType
	VLAN      uint16         // only frames of this VLAN id belong to the link; 0: all
	Ring      Ring           // receive ring of an afpacket link
	Addresses []netip.Prefix // in place of the host's on this interface
}

// Ring is the size of a receive ring. Zeros leave the choice to the link.
type Ring struct {
	Slots    int // number of frames
	SlotSize int // bytes a frame may have in its slot, headers included
}

// Route is a static route beside the host's; it wins over one of the host's
// with the same destination.
type Route struct {
	To   netip.Prefix
	Via  netip.Addr // the gateway; invalid: on the link itself
	Link string
}

// Bounds of what a configuration file may say.
const (
	maxLinks    = 256
	maxVLAN     = 4094 // IEEE 802.1Q: 0 and 4095 are reserved
	minSlots    = 64
	maxSlots    = 1 << 20
	minSlotSize = 512
	maxSlotSize = 1 << 18
	maxSocket   = 107 // bytes of a path in sockaddr_un
	maxName     = 15  // bytes of an interface name (IFNAMSIZ-1)
)

// Load reads the configuration file at path.
func Load(path string) (*Config, error) {
	data, err := ReadFile(path)
	if err != nil {
		return nil, err
	}
	return Parse(path, data)
}

// ReadFile returns what is in the configuration file at path; of one that is too large,
// more than Parse takes, which says so: the file may have no end.
func ReadFile(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	defer f.Close()
	data, err := io.ReadAll(io.LimitReader(f, 2*maxBytes))
	if err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	return data, nil
}

// Parse reads a configuration; name stands for it in messages. It refuses
// whatever it does not know. Its error joins everything that is wrong, one
// line each, beginning with name:line:column.
func Parse(name string, data []byte) (*Config, error) {
	doc, root, err := parseDocument(name, data)
	if err != nil {
		return nil, err
	}
	c := &Config{Control: DefaultSocket}
	decodeConfig(c, root)
	if err := doc.err(); err != nil {
		return nil, err
	}
	return c, nil
}

// Link returns the configured link of that name, or nil.
func (c *Config) Link(name string) *Link {
	for i := range c.Links {
		if c.Links[i].Name == name {
			return &c.Links[i]
		}
	}
	return nil
}
