package link

import (
	"os"

	"pktdirector/dataplane"
	"pktdirector/packet"
)

// Movable is an open link that another process can go on with. What waits in its
// queues waits for that process.
type Movable interface {
	dataplane.Link
	// Files returns duplicates of what the other process needs: one for each queue.
	Files() ([]*os.File, error)
	// HandOver returns what the other process must know beside the files. Nobody may
	// read or write meanwhile, and only TakeBack makes the link of use here again.
	HandOver() Place
	// TakeBack has the link go on here. used tells that the other process may have
	// read already; it is gone.
	TakeBack(used bool)
	// GoOn has a link that was taken go on from p. Nobody has read or written yet.
	GoOn(p Place) error
	// Place is what HandOver returns, of a link at work: its queues have moved on
	// by the time it is read, their form has not.
	Place() Place
}

// Place is where an open link stands.
type Place struct {
	Name  string              `json:"name"`
	Stats dataplane.LinkStats `json:"stats"`
	Rings []RingPlace         `json:"rings,omitempty"` // by queue
	// What was last seen of the interface under an AF_PACKET link; index 0: it is gone.
	Index int        `json:"index"`
	MTU   int        `json:"mtu"`
	MAC   packet.MAC `json:"mac"`
	Up    bool       `json:"up"`
}

// RingPlace is the form of a receive ring and which slot is next. Sizes are bytes.
type RingPlace struct {
	SlotSize int `json:"slot_size"`
	Slots    int `json:"slots"`
	PerBlock int `json:"per_block"`
	Block    int `json:"block"`
	At       int `json:"at"`
}
