// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
)

// admitText refuses a request with a NUL in any of its texts: a command line, an
// environment, a path and a name end there for the kernel, so that none of them
// would be what was asked for, or a task would fail at each start, far from
// whoever wrote it. Contents that may be anything are bytes in Docker's types.
func admitText(request any) error {
	if field, found := findNUL(reflect.ValueOf(request)); found {
		return errInvalid("invalid %s: it holds a NUL byte", strings.TrimPrefix(field, "."))
	}
	return nil
}

// findNUL finds the first text with a NUL, and names it as a client would:
// ".TaskTemplate.ContainerSpec.Args[1]". Of a map the key is named.
func findNUL(v reflect.Value) (field string, found bool) {
	switch v.Kind() {
	case reflect.String:
		return "", strings.IndexByte(v.String(), 0) >= 0
	case reflect.Pointer, reflect.Interface:
		return findNUL(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			f := v.Type().Field(i)
			if !f.IsExported() && !f.Anonymous {
				continue
			}
			if field, found := findNUL(v.Field(i)); found {
				return fieldName(f) + field, true
			}
		}
	case reflect.Slice, reflect.Array:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			return "", false // contents
		}
		for i := range v.Len() {
			if field, found := findNUL(v.Index(i)); found {
				return fmt.Sprintf("[%d]%s", i, field), true
			}
		}
	case reflect.Map:
		for _, key := range keysInOrder(v) {
			if strings.IndexByte(key.String(), 0) >= 0 {
				return fmt.Sprintf("[%q]", key), true
			}
			if field, found := findNUL(v.MapIndex(key)); found {
				return fmt.Sprintf("[%q]%s", key, field), true
			}
		}
	}
	return "", false
}

// fieldName is a field as JSON has it; the fields of an embedded struct are its
// parent's.
func fieldName(f reflect.StructField) string {
	name, _, _ := strings.Cut(f.Tag.Get("json"), ",")
	switch {
	case name != "":
		return "." + name
	case f.Anonymous:
		return ""
	}
	return "." + f.Name
}

// keysInOrder are a map's keys, sorted, so that the error is the same each time.
func keysInOrder(v reflect.Value) []reflect.Value {
	keys := v.MapKeys()
	slices.SortFunc(keys, func(a, b reflect.Value) int { return strings.Compare(a.String(), b.String()) })
	return keys
}
