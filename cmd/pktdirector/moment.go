package main

import (
	"time"

	"pktdirector/image"
)

// moment is a point in time that another process, also one after a reboot, can tell
// how long ago it was.
type moment struct {
	wall   time.Time
	boot   string        // of the host: another after each reboot; empty where that is not known
	uptime time.Duration // of the host, sleep included
}

// carry carries the moment.
func (m *moment) carry(x *image.Codec) {
	wall := m.wall.UnixNano()
	image.Num(x, &wall)
	x.Text(&m.boot)
	image.Num(x, &m.uptime)
	m.wall = time.Unix(0, wall)
}

// until returns the time from m to a later moment. While the host was up, its clock
// may have been set: then it does not count. After a reboot it is all there is, and where
// it was set back no time passed that one knows of; remark says so.
func (m moment) until(now moment) (passed time.Duration, remark string) {
	if m.boot != "" && m.boot == now.boot && now.uptime >= m.uptime {
		return now.uptime - m.uptime, ""
	}
	if passed = now.wall.Sub(m.wall); passed < 0 {
		return 0, "the clock was set back by " + (-passed).Round(time.Second).String() + ": connections are as old as they were"
	}
	return passed, ""
}
