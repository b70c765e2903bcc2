package sched

import (
	"reflect"
	"testing"
)

// A scheduler that remembers more than its destinations and what was configured
// has to be a Remembering one.
func TestSchedulersThatRememberSaySo(t *testing.T) {
	derived := map[string]bool{"dests": true, "table": true, "flags": true, "fallback": true} // by Update and Config
	for name, construct := range constructors() {
		s := construct(Config{})
		_, says := s.(Remembering)
		has := false
		kind := reflect.TypeOf(s).Elem()
		for i := range kind.NumField() {
			has = has || !derived[kind.Field(i).Name]
		}
		if has != says {
			t.Errorf("%s: has a memory of its own: %v, carries one: %v", name, has, says)
		}
	}
}
