//go:build !linux

package main

import "time"

// momentNow is the present.
func momentNow() moment { return moment{wall: time.Now()} }
