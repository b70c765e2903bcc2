package sim

import (
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// sameText compares what ipvsadm printed. Connections may stand in any order
// and their seconds may be those of a moment later; counters may be behind, since
// the kernel refreshes them every two seconds, and rates are those of the moment;
// services that are listed unsorted (args) may stand in any order.
func sameText(args, want, got string) bool {
	if strings.Contains(args, "--nosort") && strings.Contains(want, " -> RemoteAddress") {
		want, got = servicesSorted(want), servicesSorted(got)
	}
	if want == got {
		return true
	}
	switch {
	case strings.HasPrefix(want, "IPVS connection entries\n"):
		return sameConnectionLines(lines(want), lines(got))
	case strings.Contains(want, " InPkts "):
		return sameCounters(lines(want), lines(got), true)
	case strings.Contains(want, " InPPS "):
		return sameCounters(lines(want), lines(got), false)
	}
	return false
}

// servicesSorted puts the services of a listing into an order, each with its
// servers as they stand.
func servicesSorted(listing string) string {
	var services []string
	for _, line := range strings.SplitAfter(listing, "\n") {
		if strings.HasPrefix(line, "  -> ") && len(services) > 0 {
			services[len(services)-1] += line
			continue
		}
		services = append(services, line)
	}
	slices.Sort(services)
	return strings.Join(services, "")
}

// sameConnectionLines compares two listings of connections as sets. The times
// left are those of entries that were compared already.
func sameConnectionLines(want, got []string) bool {
	if len(want) != len(got) {
		return false
	}
	entries := func(list []string) (sorted []string, left map[string]int) {
		left = map[string]int{}
		for _, line := range list {
			name, seconds := withoutTime(line)
			sorted = append(sorted, name)
			left[name] = seconds
		}
		slices.Sort(sorted)
		return sorted, left
	}
	wantNames, wantLeft := entries(want)
	gotNames, gotLeft := entries(got)
	if !slices.Equal(wantNames, gotNames) {
		return false
	}
	for name, seconds := range wantLeft {
		if d := gotLeft[name] - seconds; d < -1 || d > 1 {
			return false
		}
	}
	return true
}

// withoutTime takes the column "mm:ss" out of a connection's line.
func withoutTime(line string) (string, int) {
	at := regexp.MustCompile(`^(\S+ +)(\d+):(\d\d)( .*)$`).FindStringSubmatch(line)
	if at == nil {
		return line, 0
	}
	minutes, _ := strconv.Atoi(at[2]) // digits
	seconds, _ := strconv.Atoi(at[3])
	return at[1] + at[4], minutes*60 + seconds
}

// isBytes tells the columns InBytes and OutBytes, the last two of a line. A record
// does not say how long the payload of its packets was, so it may have more.
func isBytes(column, columns int) bool { return column >= columns-2 }

// sameCounters compares two listings of counters, or without their values.
func sameCounters(want, got []string, values bool) bool {
	if len(want) != len(got) {
		return false
	}
	number := regexp.MustCompile(` +\d+[KMGT]?`)
	for i := range want {
		if number.ReplaceAllString(want[i], " #") != number.ReplaceAllString(got[i], " #") {
			return false
		}
		was, is := number.FindAllString(want[i], -1), number.FindAllString(got[i], -1)
		for j := range was {
			w, err1 := strconv.Atoi(strings.TrimSpace(was[j]))
			g, err2 := strconv.Atoi(strings.TrimSpace(is[j]))
			if values && !isBytes(j, len(was)) && err1 == nil && err2 == nil && w > g {
				return false
			}
		}
	}
	return true
}
