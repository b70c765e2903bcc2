package host

import "testing"

func TestAvailableMemoryIsFreeAndBuffers(t *testing.T) {
	const meminfo = "MemTotal:        2030576 kB\nMemFree:           40000 kB\nMemAvailable:    1500000 kB\nBuffers:             500 kB\nCached:          1400000 kB\n"
	if got, err := availableKiB(meminfo); err != nil || got != 40500 {
		t.Errorf("%d kB (%v), want 40500", got, err)
	}
	for _, bad := range []string{"", "MemFree: 1 kB\n", "MemFree: x kB\nBuffers: 1 kB\n"} {
		if got, err := availableKiB(bad); err == nil {
			t.Errorf("%q gives %d kB, want an error", bad, got)
		}
	}
	if pages, err := AvailablePages(); err != nil || pages <= 0 {
		t.Errorf("this host has %d pages (%v)", pages, err)
	}
}
