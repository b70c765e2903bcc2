package sched

// FellBack reports whether the last Schedule of s picked the owner of another
// place of its table than the packet led to, as sh and mh do with FlagFallback
// when that place's owner is not eligible. Explanation.Fallback says the same.
func FellBack(s Scheduler) bool {
	f, ok := s.(interface{ fellBack() bool })
	return ok && f.fellBack()
}

// fallback remembers whether a scheduler's last pick was another place's owner.
type fallback struct{ fell bool }

func (f *fallback) fellBack() bool { return f.fell }
