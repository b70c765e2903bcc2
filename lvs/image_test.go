package lvs

import (
	"testing"

	"pktdirector/image"
	"pktdirector/image/imagetest"
)

// A field that is added must be carried, or named here.
func TestImagesCarryEveryField(t *testing.T) {
	imagetest.Fields(t, (*ServiceKey).Carry)
	imagetest.Fields(t, (*ServerKey).Carry)
	imagetest.Fields(t, (*TunnelInfo).Carry)
	imagetest.Fields(t, (*VirtualService).Carry, "Servers") // destinations are carried by themselves
	imagetest.Fields(t, (*Sources).Carry)
	imagetest.Fields(t, (*PortRange).Carry)
	imagetest.Fields(t, (*MarkRule).Carry)
	imagetest.Fields(t, (*Stats).Carry)
	imagetest.Fields(t, (*Counters).Carry, "zero", "mu")                                                  // zero: below
	imagetest.Fields(t, (*Destination).Carry, "ID", "active", "inactive", "Persistent", "Total", "Stats") // follow from the entries; Stats: Counters
}

func TestCountersComeBack(t *testing.T) {
	var c Counters
	c.Conns.Store(7)
	c.In(10, 1000)
	c.Estimate()
	c.Zero()
	c.Out(3, 300)
	c.Estimate()
	w := image.Writing(nil)
	c.Carry(w)
	var got Counters
	r := image.Reading(w.Bytes())
	got.Carry(r)
	if err := r.End(); err != nil {
		t.Fatal(err)
	}
	for range 3 {
		if got.Read() != c.Read() || got.Rates() != c.Rates() || got.all() != c.all() {
			t.Fatalf("%+v %+v, want %+v %+v", got.Read(), got.Rates(), c.Read(), c.Rates())
		}
		c.In(5, 50)
		got.In(5, 50)
		c.Estimate()
		got.Estimate()
	}
}
