package main

import (
	"time"

	"pktdirector/control"
	"pktdirector/dataplane/link"
)

// upgradeProtocol is the version of what a director and its successor say to each
// other. Who changes a word, or what a file is, gives it another number: a director
// hands over to none that speaks another.
const upgradeProtocol = 1

// word is what a director and its successor say to each other, in this order:
//
//	successor  hello     which program it is
//	director   offer     with the files named in Files
//	director   link      for each link, with its sockets
//	successor  prepared  its configuration is right, and it has what was sent
//	director   links     it rests: where each link stands
//	director   image     the engine's state, a file of memory
//	successor  ready     it could forward
//	director   go        it will not forward any more
//	successor  forwards  it does
//	director   bye       the service manager knows
//
// In place of any of its words the successor may say no, and why. Until it has said
// forwards, the director ends it and goes on where the two do not get further.
type word struct {
	Say string `json:"say"`
	Why string `json:"why,omitempty"` // of no

	// Of hello.
	Protocol int             `json:"protocol,omitempty"`
	Program  control.Program `json:"program,omitzero"`

	// Of offer.
	Image int      `json:"image,omitempty"` // version of the image to come
	Links int      `json:"links,omitempty"`
	Guard string   `json:"guard,omitempty"` // name of the guard's tables; empty: there is none
	Files []string `json:"files,omitempty"` // what the files are

	Place *link.Place `json:"place,omitempty"` // of link and links

	// Of ready and forwards.
	Connections int           `json:"connections,omitempty"`
	Templates   int           `json:"templates,omitempty"`
	At          time.Duration `json:"at,omitempty"` // of the host's uptime
}

// What is said.
const (
	sayHello    = "hello"
	sayOffer    = "offer"
	sayLink     = "link"
	sayPrepared = "prepared"
	sayLinks    = "links"
	sayImage    = "image"
	sayReady    = "ready"
	sayGo       = "go"
	sayForwards = "forwards"
	sayBye      = "bye"
	sayNo       = "no"
)

// Files of an offer.
const (
	fileConfig  = "config"  // memory: the configuration as it was loaded
	fileClaim   = "claim"   // memory: what was changed on the host
	fileLock    = "lock"    // of the claim
	fileAPI     = "api"     // listening unix socket
	fileAPITCP  = "api-tcp" // listening TCP sockets
	fileMetrics = "metrics"
)
