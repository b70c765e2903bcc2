//go:build !race

package sched_test

const underRace = false
