package sim

import (
	"math"
	"time"
)

// readTimes gives times to commands and files that were read without one, between
// two events that have one: a record of commands that only list things has none,
// though each took its time.
func readTimes(events []*Event) map[*Event]time.Duration {
	times := map[*Event]time.Duration{}
	for i := 0; i < len(events); i++ {
		if events[i].T == nil {
			continue
		}
		end := i + 1
		for end < len(events) && events[end].T == nil && (events[end].Op == "ipvsadm" || events[end].Op == "proc") {
			end++
		}
		if end == len(events) || events[end].T == nil {
			continue
		}
		from, to := *events[i].T, *events[end].T
		if events[end].Op == "sleep" {
			to -= events[end].Seconds
		}
		for k := i + 1; k < end && to > from; k++ {
			at := from + (to-from)*float64(k-i)/float64(end-i)
			times[events[k]] = time.Duration(math.Round(at * float64(time.Second)))
		}
	}
	return times
}
