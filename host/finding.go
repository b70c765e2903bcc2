package host

import (
	"fmt"

	"pktdirector/lvs"
)

// Severity says what a finding means for forwarding.
type Severity uint8

// Severities, mildest first.
const (
	Note    Severity = iota // good to know
	Warning                 // something will not work for some clients, or not well
	Fault                   // the director cannot do its work
)

// String returns the word a report prints.
func (s Severity) String() string {
	switch s {
	case Note:
		return "note"
	case Warning:
		return "warning"
	}
	return "error"
}

// Finding is one thing on this host that affects forwarding.
type Finding struct {
	Severity Severity
	What     string // what was found, with its value
	Remedy   string // what to do about it
}

// String formats f on one line.
func (f Finding) String() string {
	if f.Remedy == "" {
		return fmt.Sprintf("%s: %s", f.Severity, f.What)
	}
	return fmt.Sprintf("%s: %s; %s", f.Severity, f.What, f.Remedy)
}

// Plan is what a director is going to do on this host.
type Plan struct {
	Links  []Link
	Static Static
	Rules  lvs.Ruleset
	// Merged names links whose driver hands over merged segments without
	// saying how large they were.
	Merged []string
}
