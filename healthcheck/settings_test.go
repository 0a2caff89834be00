// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// TestFromConfigTest: what each kind of Test asks for.
func TestFromConfigTest(t *testing.T) {
	for _, c := range []struct {
		test    []string
		argv    []string // nil: no probe
		warning string
		field   string // of the error
	}{
		{test: []string{"CMD", "/hc"}, argv: []string{"/hc"}},
		{test: []string{"CMD", "sh", "-c", "x y"}, argv: []string{"sh", "-c", "x y"}},
		{test: []string{"CMD-SHELL", "curl -f http://x || exit 1"}, argv: []string{"/bin/sh", "-c", "curl -f http://x || exit 1"}},
		{test: []string{"CMD-SHELL", "echo $0", "a"}, argv: []string{"/bin/sh", "-c", "echo $0", "a"}},
		{test: []string{"NONE"}},
		{test: []string{"NONE", "x"}},
		{test: nil},
		{test: []string{}},
		{test: []string{""}},
		{test: []string{"FOO", "x"}, warning: `"FOO"`},
		{test: []string{"cmd", "x"}, warning: `"cmd"`},
		{test: []string{"", "x"}, warning: `""`},
		{test: []string{"\u00e4\n"}, warning: `"\u00e4\n"`},
		{test: []string{"CMD"}, field: "Test"},
		{test: []string{"CMD", ""}, field: "Test"},
		{test: []string{"CMD-SHELL"}, field: "Test"},
		{test: []string{"CMD-SHELL", ""}, field: "Test"},
		{test: []string{"CMD-SHELL", " \t\n"}, field: "Test"},
	} {
		s, ok, warnings, err := FromSpec(&container.HealthConfig{Test: c.test}, nil)
		if ok != (c.argv != nil) || !reflect.DeepEqual(s.Argv, c.argv) {
			t.Errorf("%q: argv %q, ok %v", c.test, s.Argv, ok)
		}
		if got := strings.Join(warnings, ""); (got != "") != (c.warning != "") || !strings.Contains(got, c.warning) {
			t.Errorf("%q: warnings %q", c.test, warnings)
		}
		checkField(t, err, c.field, "")
	}
	if _, ok, warnings, err := FromSpec(nil, nil); ok || warnings != nil || err != nil {
		t.Errorf("nil: %v %q %v", ok, warnings, err)
	}
	if _, ok, warnings, _ := FromSpec(&container.HealthConfig{Interval: sec}, nil); ok || len(warnings) != 1 {
		t.Errorf("settings without a Test: %v %q", ok, warnings)
	}
}

// checkField checks for an error that names a field; none where field is "".
func checkField(t *testing.T, err error, field, text string) {
	t.Helper()
	if field == "" {
		if err != nil {
			t.Errorf("refused: %v", err)
		}
		return
	}
	var fe *FieldError
	if !errors.As(err, &fe) || fe.Field != field || !errdefs.IsInvalidArgument(err) ||
		!strings.Contains(err.Error(), field) || !strings.Contains(err.Error(), text) {
		t.Errorf("error %v, want one about %s: %s", err, field, text)
	}
}

func TestFromConfigNumbers(t *testing.T) {
	const bad = "0 or >= 1ms"
	for _, c := range []struct {
		name        string
		hc          container.HealthConfig
		want        Settings
		field, text string
	}{
		{"zeros are defaults", container.HealthConfig{},
			docker(30*sec, 30*sec, 3, 0, 5*sec), "", ""},
		{"explicit", container.HealthConfig{Interval: 10 * sec, Timeout: 2 * sec, Retries: 1, StartPeriod: 30 * sec, StartInterval: sec},
			docker(10*sec, 2*sec, 1, 30*sec, sec), "", ""},
		{"a short interval is never slowed down", container.HealthConfig{Interval: 2 * sec},
			docker(2*sec, 30*sec, 3, 0, 2*sec), "", ""},
		{"StartInterval without StartPeriod counts (verdict-1)", container.HealthConfig{StartInterval: sec},
			docker(30*sec, 30*sec, 3, 0, sec), "", ""},
		{"StartInterval above the interval is as asked for", container.HealthConfig{Interval: sec, StartInterval: 9 * sec},
			docker(sec, 30*sec, 3, 0, 9*sec), "", ""},
		{"1 ms", container.HealthConfig{Interval: time.Millisecond},
			docker(time.Millisecond, 30*sec, 3, 0, time.Millisecond), "", ""},
		{"0.5 ms", container.HealthConfig{Interval: 500000}, Settings{}, "Interval", bad},
		{"T=-1", container.HealthConfig{Timeout: -1}, Settings{}, "Timeout", bad},
		{"SP=1", container.HealthConfig{StartPeriod: 1}, Settings{}, "StartPeriod", bad},
		{"SI=999us", container.HealthConfig{StartInterval: 999 * time.Microsecond}, Settings{}, "StartInterval", bad + ", not 999us"},
		{"R=-1", container.HealthConfig{Retries: -1}, Settings{}, "Retries", "0 or >= 1"},
		{"R=2^31-1", container.HealthConfig{Interval: sec, Retries: math.MaxInt32}, docker(sec, 30*sec, math.MaxInt32, 0, sec), "", ""},
		{"R=2^32+1", container.HealthConfig{Retries: 1<<32 + 1}, Settings{}, "Retries", "at most 2147483647, not 4294967297"},
	} {
		t.Run(c.name, func(t *testing.T) {
			c.hc.Test = []string{"CMD", "x"}
			if c.field == "" {
				c.want.Argv = []string{"x"}
			}
			got, _, _, err := FromSpec(&c.hc, nil)
			checkField(t, err, c.field, c.text)
			if !reflect.DeepEqual(got, c.want) {
				t.Errorf("got %+v, want %+v", got, c.want)
			}
			// Numbers are checked whether or not there is a probe.
			c.hc.Test = []string{"NONE"}
			_, _, _, err = FromSpec(&c.hc, nil)
			checkField(t, err, c.field, c.text)
		})
	}
}

// docker are settings of Docker's semantics, of a command to be filled in.
func docker(interval, timeout time.Duration, retries int, startPeriod, startInterval time.Duration) Settings {
	return Settings{Interval: interval, Timeout: timeout, Retries: retries, StartPeriod: startPeriod, StartInterval: startInterval}
}

func FuzzFromHealthcheck(f *testing.F) {
	for _, s := range []string{
		`{}`, `{"Test":["NONE"]}`, `{"Test":["CMD","x"],"Interval":500000}`, `{"Test":["FOO","x"]}`,
		`{"Test":["CMD-SHELL","curl || exit 1"],"Interval":10000000000,"Timeout":2000000000,"Retries":3,"StartPeriod":30000000000}`,
		`{"Test":["CMD","x"],"Interval":9223372036854775807,"Timeout":9223372036854775807,"Retries":9223372036854775807}`,
		`{"Test":["CMD",""],"Retries":-1}`, `{"Test":[""],"StartInterval":1}`, `null`,
	} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, text string) {
		var hc *container.HealthConfig
		if json.Unmarshal([]byte(text), &hc) != nil {
			return
		}
		s, ok, warnings, err := FromSpec(hc, nil)
		switch {
		case err != nil:
			if ok || !errdefs.IsInvalidArgument(err) {
				t.Fatalf("ok %v with %v", ok, err)
			}
			for _, r := range err.Error() {
				if r < ' ' || r > '~' {
					t.Fatalf("error is not ASCII: %q", err)
				}
			}
			if applied := tightened(hc); applied != "" {
				t.Fatalf("an invalid healthcheck was given %s", applied)
			}
			return
		case !ok:
			if !reflect.DeepEqual(s, Settings{}) || tightened(hc) != "" {
				t.Fatalf("no probe, but %+v", s)
			}
			return
		case len(warnings) > 0:
			t.Fatalf("a good probe is warned about: %q", warnings)
		}
		checkSettings(t, s)
		if WorstCase(s, 10*sec) < Sustained(s) {
			t.Fatalf("worst case %v, sustained %v", WorstCase(s, 10*sec), Sustained(s))
		}
		tightened(hc)
		if again := tightened(hc); again != "" {
			t.Fatalf("applied twice: %s", again)
		}
		s, ok, _, err = FromSpec(hc, nil)
		if !ok || err != nil {
			t.Fatalf("the tighter defaults made it invalid: %v", err)
		}
		checkSettings(t, s)
	})
}

// checkSettings: resolved settings hold nothing that means something else.
func checkSettings(t *testing.T, s Settings) {
	t.Helper()
	if len(s.Argv) == 0 || s.Argv[0] == "" || s.Retries < 1 || s.StartPeriod < 0 ||
		min(s.Interval, s.Timeout, s.StartInterval) < MinDuration {
		t.Fatalf("settings %+v", s)
	}
}

func TestBoundsDoNotOverflow(t *testing.T) {
	s := Settings{Interval: math.MaxInt64, Timeout: math.MaxInt64, Retries: math.MaxInt}
	if Sustained(s) != math.MaxInt64 || WorstCase(s, 10*sec) != math.MaxInt64 {
		t.Errorf("%v %v", Sustained(s), WorstCase(s, 10*sec))
	}
}
