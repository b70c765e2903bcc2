package conntrack

import (
	"testing"

	"pktdirector/image/imagetest"
)

// A field that is added to Conn must be carried, or named here.
func TestImagesCarryEveryFieldOfConn(t *testing.T) {
	imagetest.Fields(t, (*Conn).fields,
		"self",                 // the handle: given anew
		"prev", "next", "slot", // the wheel: armed anew
		"rank", "before", "behind", // lines are carried after the entries
	)
}
