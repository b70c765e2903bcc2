package main

import "testing"

func TestConnectionsByMemory(t *testing.T) {
	for memory, want := range map[uint64]int{
		0:         65_536, // not known
		256 << 20: 131_072,
		2 << 30:   1_048_576,
		1 << 40:   16_777_216,
	} {
		if got := connMax(memory); got != want {
			t.Errorf("%d bytes of memory: %d connections, want %d", memory, got, want)
		}
	}
}
