package sim

import (
	"regexp"
	"slices"
	"strings"
)

// sameProc compares what one of the kernel's files said. Services and connections
// may stand in any order, a connection's seconds may be those of a moment later,
// counters may be behind, and rates are those of the moment.
func sameProc(file, want, got string) bool {
	switch file {
	case "/proc/net/ip_vs":
		return servicesSorted(want) == servicesSorted(got)
	case "/proc/net/ip_vs_stats":
		return sameTotals(lines(want), lines(got))
	}
	return sameProcConnections(lines(want), lines(got))
}

// sameProcConnections compares connections as sets. The seconds left are those
// of entries that were compared already.
func sameProcConnections(want, got []string) bool {
	seconds := regexp.MustCompile(` +\d+$`)
	names := func(list []string) []string {
		var all []string
		for _, line := range list {
			all = append(all, seconds.ReplaceAllString(line, ""))
		}
		slices.Sort(all)
		return all
	}
	return slices.Equal(names(want), names(got))
}

// sameTotals compares the file of totals, which is in hex: line 2 counts, line 5
// has the rates. The kernel's counts may be behind.
func sameTotals(want, got []string) bool {
	const counts, rates = 2, 5
	if len(want) != len(got) || len(want) <= rates {
		return false
	}
	for i := range want {
		if i != counts && i != rates && want[i] != got[i] {
			return false
		}
	}
	was, is := strings.Fields(want[counts]), strings.Fields(got[counts])
	for j := range was {
		if isBytes(j, len(was)) {
			continue
		}
		// The same width each, so the order of the texts is that of the numbers.
		if len(was[j]) > len(is[j]) || len(was[j]) == len(is[j]) && was[j] > is[j] {
			return false
		}
	}
	return len(was) == len(is)
}
