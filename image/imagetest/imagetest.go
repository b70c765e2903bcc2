// Package imagetest helps to test that an image carries all of a value.
package imagetest

import (
	"bytes"
	"math/rand/v2"
	"reflect"
	"slices"
	"testing"
	"unsafe"

	"pktdirector/image"
)

// Fields fails for each field of T that carry does not carry, unless it is named
// in leftOut; and for a name in leftOut that is no such field. Fields of structs are
// looked at one by one.
func Fields[T any](t *testing.T, carry func(*T, *image.Codec), leftOut ...string) {
	t.Helper()
	write := func(v *T) []byte {
		x := image.Writing(nil)
		carry(v, x)
		return x.Bytes()
	}
	none := write(new(T))
	seen := map[string]bool{}
	kind := reflect.TypeFor[T]()
	for i := range kind.NumField() {
		name := kind.Field(i).Name
		if slices.Contains(leftOut, name) || name == "_" {
			seen[name] = true
			continue
		}
		for _, path := range leaves(kind.Field(i).Type, nil) {
			v := new(T)
			set(reflect.ValueOf(v).Elem(), append([]int{i}, path...))
			if bytes.Equal(write(v), none) {
				t.Errorf("%v.%s (%v) is not carried: give it a line in Carry, or name it as left out here", kind, name, path)
			}
		}
	}
	for _, name := range leftOut {
		if !seen[name] {
			t.Errorf("%v has no field %s to leave out", kind, name)
		}
	}
}

// leaves lists the ways to all plain fields of a type.
func leaves(kind reflect.Type, path []int) (all [][]int) {
	if kind.Kind() != reflect.Struct {
		return [][]int{path}
	}
	for i := range kind.NumField() {
		if kind.Field(i).Name != "_" {
			all = append(all, leaves(kind.Field(i).Type, append(slices.Clone(path), i))...)
		}
	}
	return all
}

// set gives a field a value that is not zero.
func set(v reflect.Value, path []int) {
	for _, i := range path {
		v = v.Field(i)
	}
	v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() // fields that are not exported, too
	fill(v)
}

func fill(v reflect.Value) {
	switch v.Kind() {
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		v.SetInt(1 + rand.Int64N(60))
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(1 + rand.Uint64N(60))
	case reflect.String:
		v.SetString("x")
	case reflect.Array:
		fill(v.Index(v.Len() - 1))
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), 1, 1))
	default:
		panic("imagetest: a field of kind " + v.Kind().String())
	}
}
