package capture

// ClockAt shows clock.at.
func ClockAt(resolution byte, offset int64, t uint64) (int64, bool) {
	c := clock{offset: offset}
	c.resolution(resolution)
	return c.at(t)
}
