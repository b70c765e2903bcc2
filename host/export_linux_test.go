package host

import (
	"encoding/json"

	mdl "github.com/mdlayher/netlink"

	"pktdirector/dataplane"
)

// NewUnownedGuard is NewGuard on a kernel that knows no table ownership.
func NewUnownedGuard() (*Guard, error) { return newGuard(tableName, false, true) }

// RemoveTables deletes what a killed director left in nftables.
var RemoveTables = removeTables

// ParseState reads a state file and returns what it would write if it were
// written anew.
func ParseState(data []byte) (again []byte, err error) {
	changes, err := parseChanges(data)
	if err != nil {
		return nil, err
	}
	for _, ch := range changes {
		if ch.Rule != nil {
			ch.Rule.rule()
		}
	}
	return json.Marshal(changes)
}

// ClaimIn is claimIn.
var ClaimIn = claimIn

// Heard has a watcher of one link, whose interface has index 2, read a message of
// the kernel's. told is what it learns of neighbours.
func Heard(kind uint16, data []byte, told func(dataplane.Neighbour)) (changed bool) {
	w := &Watcher{links: []Link{{}}, index: map[int]int{2: 0}, table: noter(told)}
	return w.note([]mdl.Message{{Header: mdl.Header{Type: mdl.HeaderType(kind)}, Data: data}})
}

type noter func(dataplane.Neighbour)

func (n noter) SetHost(dataplane.HostTable)    {}
func (n noter) Learn(hint dataplane.Neighbour) { n(hint) }

// AvailableKiB is availableKiB.
var AvailableKiB = availableKiB
