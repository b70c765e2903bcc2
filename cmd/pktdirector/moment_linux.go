package main

import (
	"os"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// momentNow is the present.
func momentNow() moment {
	m := moment{wall: time.Now()}
	var ts unix.Timespec
	id, err := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err == nil && unix.ClockGettime(unix.CLOCK_BOOTTIME, &ts) == nil {
		m.boot, m.uptime = strings.TrimSpace(string(id)), time.Duration(ts.Nano())
	}
	return m
}
