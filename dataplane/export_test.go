package dataplane

import (
	"reflect"

	"pktdirector/packet"
)

// ShardOf tells shards of the connection table apart: two client endpoints have
// the same one when their connections share a lock.
func (d *Director) ShardOf(proto packet.Proto, client packet.Addr, port uint16) uintptr {
	slot := d.table.Lock(proto, client, port)
	defer slot.Unlock()
	return reflect.ValueOf(slot).FieldByName("s").Pointer()
}

// FragmentsHeld returns the datagrams and bytes of memory that wait to be whole.
func (d *Director) FragmentsHeld() (datagrams, bytes int) { return d.fragments.Held() }
