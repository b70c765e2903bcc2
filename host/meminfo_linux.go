package host

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// AvailablePages returns how many pages of the host's memory are free or hold
// buffers, which is what the kernel's IPVS calls available. What the page cache
// holds is not in it, though it could be taken back.
func AvailablePages() (int64, error) {
	const file = "/proc/meminfo"
	b, err := os.ReadFile(file)
	if err != nil {
		return 0, err
	}
	kib, err := availableKiB(string(b))
	if err != nil {
		return 0, fmt.Errorf("%s: %w", file, err)
	}
	return kib * 1024 / int64(os.Getpagesize()), nil
}

// availableKiB adds up MemFree and Buffers of /proc/meminfo (proc_meminfo(5)).
func availableKiB(meminfo string) (sum int64, err error) {
	found := 0
	for line := range strings.Lines(meminfo) {
		name, value, _ := strings.Cut(line, ":")
		if name != "MemFree" && name != "Buffers" {
			continue
		}
		n, err := strconv.ParseUint(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 52)
		if err != nil {
			return 0, fmt.Errorf("%s: %q is not a number of kB", name, strings.TrimSpace(value))
		}
		sum += int64(n)
		found++
	}
	if found != 2 {
		return 0, fmt.Errorf("MemFree and Buffers are not both there")
	}
	return sum, nil
}
