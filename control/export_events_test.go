package control

import "time"

// Chooses tells whether a listener with the filter gets an event.
func Chooses(f *EventFilter, kind EventKind, s *Subject) bool {
	return f.kinds()&kind != 0 && f.chooses(kind, s)
}

// Captured is what one who captures is told of a batch.
func Captured(q CaptureQuery, batch []PacketRecord) (all []*CapturedPacket) {
	e := NewEvents(nil)
	l, stop, err := e.capture(q)
	if err != nil {
		panic(err)
	}
	defer stop()
	e.PublishPackets(time.Unix(1, 0), batch)
	for range len(l.queue) {
		all = append(all, l.take(<-l.queue))
	}
	return all
}
