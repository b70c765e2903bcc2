package control

import "iter"

// FirstOf is ranking.firstOf.
func FirstOf(sort string, all iter.Seq[Connection], most int) []Connection {
	return newRanking(sort).firstOf(all, most)
}
