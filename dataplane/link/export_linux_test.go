package link

// SetSend replaces the system call that sends, by a function that is told how
// many frames there are and returns how many it takes.
func (l *AFPacket) SetSend(send func(frames int) (int, error)) {
	l.sendmmsg = func(_ int, msgs []mmsghdr) (int, error) { return send(len(msgs)) }
}

// SlotSize returns the size of the ring's slots.
func (l *AFPacket) SlotSize() int { return l.slotSize }

// TundevRemedy is tundevRemedy.
var TundevRemedy = tundevRemedy
