package control

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// reloadable are the fields of Config that a reload changes, and Standby, which is
// about the next start alone. Whatever else differs
// needs a start.
func reloadable() []string {
	return []string{"KeepDrift", "Watch", "Sysctl", "Timeouts", "Ruleset", "Standby"}
}

// Restart lists what the file says otherwise than the running director was started
// with, and what no reload can change: the director must be started anew.
func (c *Config) Restart(next *Config) []Fault {
	var all []Fault
	was, will := reflect.ValueOf(*c), reflect.ValueOf(*next)
	for i := range was.NumField() {
		name := was.Type().Field(i).Name
		if slices.Contains(reloadable(), name) || same(was.Field(i), will.Field(i)) {
			continue
		}
		place := strings.ToLower(name)
		if was.Field(i).Kind() != reflect.Slice {
			all = append(all, restartFault(place, was.Field(i), will.Field(i)))
			continue
		}
		for j := range max(was.Field(i).Len(), will.Field(i).Len()) {
			a, b := item(was.Field(i), j), item(will.Field(i), j)
			if !a.IsValid() || !b.IsValid() || !same(a, b) {
				all = append(all, restartFault(fmt.Sprintf("%s[%d]", place, j), a, b))
			}
		}
	}
	return all
}

// same compares values of the file; one left out is an empty one.
func same(a, b reflect.Value) bool {
	if a.Kind() == reflect.Slice && a.Len() == 0 && b.Len() == 0 {
		return true
	}
	return reflect.DeepEqual(a.Interface(), b.Interface())
}

func item(list reflect.Value, i int) reflect.Value {
	if i >= list.Len() {
		return reflect.Value{}
	}
	return list.Index(i)
}

// restartFault says what differs at one place; an invalid value is not there.
func restartFault(place string, was, will reflect.Value) Fault {
	f := Fault{Place: place}
	switch {
	case !was.IsValid():
		f.Value = shown(will)
		f.Detail = fmt.Sprintf("%s is new", f.Value)
	case !will.IsValid():
		f.Value = shown(was)
		f.Detail = fmt.Sprintf("%s is gone", f.Value)
	default:
		f.Value = shown(will)
		f.Detail = fmt.Sprintf("was %s and is %s", shown(was), f.Value)
		if was.Kind() == reflect.Struct || f.Value == shown(was) {
			f.Detail = fmt.Sprintf("%s is not as it was", f.Value)
		}
	}
	f.Detail += ", which no reload can change: start the director anew, or take it out of the file"
	return f
}

// shown is a value in a word where it has one: a link's name, a route's
// destination.
func shown(v reflect.Value) string {
	switch x := v.Interface().(type) {
	case Link:
		return x.Name
	case Route:
		return x.To.String()
	case string:
		return x
	}
	switch v.Kind() {
	case reflect.Bool, reflect.Int, reflect.Int64:
		return fmt.Sprint(v.Interface())
	}
	return "what it says"
}
