//go:build race

package sched_test

// underRace tells that the race detector slows everything down.
const underRace = true
