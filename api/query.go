// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"net/http"
	"strconv"
	"strings"
	"time"

	"github.com/docker/docker/api/types/filters"
	timetypes "github.com/docker/docker/api/types/time"
)

// queryBool reads a flag as Docker does: absent, empty, 0, no, false and none
// are false, everything else is true.
func queryBool(r *http.Request, name string) bool {
	switch strings.ToLower(strings.TrimSpace(r.URL.Query().Get(name))) {
	case "", "0", "no", "false", "none":
		return false
	}
	return true
}

// queryBoolDefault is queryBool with a value for when the flag is absent.
func queryBoolDefault(r *http.Request, name string, def bool) bool {
	if !r.URL.Query().Has(name) {
		return def
	}
	return queryBool(r, name)
}

// queryStrictBool refuses what is no boolean, for the parameters where Docker does.
func queryStrictBool(r *http.Request, name string) (bool, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return false, nil
	}
	b, err := strconv.ParseBool(v)
	if err != nil {
		return false, errInvalid("invalid value for %s: %s", name, v)
	}
	return b, nil
}

// queryInt reads an integer; absent is def, anything else that is no integer a 400.
func queryInt(r *http.Request, name string, def int64) (int64, error) {
	v := r.URL.Query().Get(name)
	if v == "" {
		return def, nil
	}
	n, err := strconv.ParseInt(v, 10, 64)
	if err != nil {
		return 0, errInvalid("invalid value for %s: %s: must be an integer", name, v)
	}
	return n, nil
}

// queryVersion reads the version of an update: required, what names the object in the error.
func queryVersion(r *http.Request, what string) (uint64, error) {
	v := r.URL.Query().Get("version")
	n, err := strconv.ParseUint(v, 10, 64)
	if err != nil {
		return 0, errInvalid("invalid %s version '%s': %v", what, v, err)
	}
	return n, nil
}

// queryTime reads a point in time as Docker's clients send it: seconds with a
// fraction, RFC 3339, or a duration before now. Absent (and 0) is the zero time.
func queryTime(r *http.Request, name string, now time.Time) (time.Time, error) {
	v := r.URL.Query().Get(name)
	if v == "" || v == "0" {
		return time.Time{}, nil
	}
	ts, err := timetypes.GetTimestamp(v, now)
	if err != nil {
		return time.Time{}, errInvalid("invalid value for %s: %s: %v", name, v, err)
	}
	sec, nano, err := timetypes.ParseTimestamps(ts, 0)
	if err != nil {
		return time.Time{}, errInvalid("invalid value for %s: %s: %v", name, v, err)
	}
	if sec == 0 && nano == 0 {
		return time.Time{}, nil
	}
	return time.Unix(sec, nano), nil
}

// parseFilters reads the filters parameter, in both of Docker's forms
// ({"name":{"x":true}} and {"name":["x"]}). A name that is not accepted is a
// 400 `invalid filter 'x'`: no list ever ignores one.
func parseFilters(r *http.Request, accepted ...string) (filters.Args, error) {
	args, err := filters.FromJSON(r.URL.Query().Get("filters"))
	if err != nil {
		return args, errInvalid("invalid filter: %s", r.URL.Query().Get("filters"))
	}
	names := make(map[string]bool, len(accepted))
	for _, name := range accepted {
		names[name] = true
	}
	for _, name := range args.Keys() {
		if !names[name] {
			return args, errInvalid("invalid filter '%s'", name)
		}
	}
	return args, nil
}
