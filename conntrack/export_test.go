package conntrack

// SetTimeoutsForTest lets tests choose timeouts.
func (t *Table) SetTimeoutsForTest(x Timeouts) { t.timeouts.Store(&x) }
