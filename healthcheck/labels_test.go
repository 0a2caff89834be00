// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"errors"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/containerd/errdefs"
	"github.com/docker/docker/api/types/container"
)

// labelsOf reads "http=/x first=0" as labels of this package.
func labelsOf(text string) map[string]string {
	labels := map[string]string{"com.example.unrelated": "satl.health."}
	for pair := range strings.FieldsSeq(text) {
		name, value, _ := strings.Cut(pair, "=")
		labels[LabelPrefix+name] = value
	}
	return labels
}

// resolved are the settings of a good spec.
func resolved(t *testing.T, hc *container.HealthConfig, labels string) Settings {
	t.Helper()
	s, ok, warnings, err := FromSpec(hc, labelsOf(labels))
	if !ok || err != nil || len(warnings) > 0 {
		t.Fatalf("%q: ok %v, warnings %q, error %v", labels, ok, warnings, err)
	}
	return s
}

// TestLabelsRefused: what cannot be meant is an invalid argument that names the
// label or the field.
func TestLabelsRefused(t *testing.T) {
	const h = LabelPrefix
	test := func(args ...string) *container.HealthConfig { return &container.HealthConfig{Test: args} }
	timeout := func(d time.Duration) *container.HealthConfig { return &container.HealthConfig{Timeout: d} }
	for _, c := range []struct {
		labels      string
		hc          *container.HealthConfig
		field, text string
	}{
		{"nonsense=1", nil, h + "nonsense", "is unknown"},
		{"http=/x replace-parallelism=1", nil, h + "replace-parallelism", "is unknown"},
		{"http.headerx=1 http=/x", nil, h + "http.headerx", "is unknown"},

		{"http=", nil, h + "http", "must start with /"},
		{"http=health", nil, h + "http", "must start with /"},
		{"http=http://x/", nil, h + "http", "must start with /"},
		{"http=/a\u00e9", nil, h + "http", "ASCII"},
		{"http=/a#b", nil, h + "http", "#"},
		{"file=health", nil, h + "file", "must start with /"},
		{"http=/x http.port=0", nil, h + "http.port", "1 to 65535"},
		{"http=/x port=65536", nil, h + "port", "1 to 65535"},
		{"tcp=http", nil, h + "tcp", "1 to 65535"},
		{"http=/x pass=ok", nil, h + "pass", "200 to 599"},
		{"http=/x pass=200-", nil, h + "pass", "200 to 599"},
		{"http=/x pass=100", nil, h + "pass", "200 to 599"},
		{"http=/x pass=399-200", nil, h + "pass", "no range"},
		{"http=/x header.=1", nil, h + "header.", "names no header"},
		{"http=/x header.A:B=1", nil, h + "header.A:B", "names no header"},
		{"http=/a\x01", nil, h + "http", "ASCII"},
		{"http=/a\x7f", nil, h + "http", "ASCII"},
		{"http=/x header.A=\u00e9", nil, h + "header.A", "cannot be sent"},
		{"http=/x header.Host=a/b", nil, h + "header.Host", "cannot be sent"},
		{"http=/x unroute-after=99999999999", nil, h + "unroute-after", "at least 1"},
		{"http=/x first=999us", nil, h + "first", "must be a time"},
		{"http=/x header.A=\x01", nil, h + "header.A", "cannot be sent"},
		{"http=/x header.connection=close", nil, h + "header.connection", "own affair"},
		{"http=/x header.host=", nil, h + "header.host", "cannot be sent"},
		{"http=/x first=-1s", nil, h + "first", "must be a time"},
		{"http=/x first=soon", nil, h + "first", "must be a time"},
		{"http=/x unroute-after=0", nil, h + "unroute-after", "at least 1"},
		{"http=/x replace-after=-5m", nil, h + "replace-after", "at least 1"},
		{"http=/x start-limit=0", nil, h + "start-limit", "longer than 0"},
		{"http=/x profile=manuel", nil, h + "profile", "docker, automatic, manual, gate, off"},
		{"http=/x action=restart", nil, h + "action", "replace, unroute, none"},

		// Contradictions.
		{"http=/x tcp=80", nil, h + "tcp", "contradicts satl.health.http"},
		{"http=/x file=/y", nil, h + "http", "contradicts satl.health.file"},
		{"http=/x", test("CMD", "true"), "Test", "contradicts satl.health.http"},
		{"tcp=80", test("NONE"), "Test", "contradicts satl.health.tcp"},
		{"http=/x http.port=80 port=80", nil, h + "port", "says the same"},
		{"http=/x http.header.a=1 header.A=2", nil, h + "http.header.a", "says the same"},
		{"port=80", nil, h + "port", "needs satl.health.http"},
		{"tcp=80 pass=200", nil, h + "pass", "needs satl.health.http"},
		{"profile=automatic", nil, h + "profile", "needs a probe"},
		{"action=none", test("NONE"), h + "action", "needs a probe"},
		{"http=/x first=0", nil, h + "first", "at least 1ms"},
		{"http=/x start-limit=5m", &container.HealthConfig{StartPeriod: sec}, h + "start-limit", "StartPeriod"},
		{"http=/x unroute-after=3", &container.HealthConfig{Retries: 3}, h + "unroute-after", "Retries"},
		{"http=/x replace-after=2", nil, h + "replace-after", "only after 3"},
		{"http=/x unroute-after=4 replace-after=1m", nil, h + "replace-after", "only after 4"},
		{"http=/x profile=automatic unroute-after=31", nil, h + "unroute-after", "after 30 failures"},
		{"http=/x action=unroute replace-after=9", nil, h + "replace-after", "action=unroute"},

		// Ranges of spec/replica-health.txt.
		{"http=/x profile=manual", timeout(999 * time.Millisecond), "Timeout", "1s to 1m0s"},
		{"http=/x profile=manual", timeout(61 * sec), "Timeout", "1s to 1m0s"},
		{"http=/x profile=automatic", timeout(61 * sec), "Timeout", "1s to 1m0s"},
		{"http=/x profile=manual first=601", nil, h + "first", "0s to 10m0s"},
		{"http=/x profile=automatic", &container.HealthConfig{Interval: sec}, "Interval", "10s or the timeout"},
		{"http=/x profile=manual", &container.HealthConfig{Retries: 3}, "Retries", "unroute-after"},
		{"http=/x profile=manual", &container.HealthConfig{StartPeriod: sec}, "StartPeriod", "start-limit"},
		{"http=/x profile=manual", &container.HealthConfig{StartInterval: sec}, "StartInterval", "one interval"},
		{"http=/x", timeout(-1), "Timeout", "1ms"},

		// A gate says itself how a start is judged.
		{"http=/x profile=gate first=3", nil, h + "first", "gate"},
		{"http=/x profile=gate start-limit=5m", nil, h + "start-limit", "gate"},
		{"http=/x profile=gate action=none", nil, h + "action", "gate"},
		{"http=/x profile=gate", &container.HealthConfig{StartPeriod: sec}, "StartPeriod", "gate"},
		{"http=/x profile=gate", &container.HealthConfig{StartInterval: sec}, "StartInterval", "gate"},
	} {
		s, ok, _, err := FromSpec(c.hc, labelsOf(c.labels))
		if err == nil || ok || !reflect.DeepEqual(s, Settings{}) {
			t.Errorf("%q: %+v, ok %v, error %v", c.labels, s, ok, err)
			continue
		}
		checkField(t, err, c.field, c.text)
	}
	_, _, _, err := FromSpec(nil, map[string]string{h + "http": "/a b"})
	checkField(t, err, h+"http", "cannot contain spaces")
	_, _, _, err = FromSpec(nil, map[string]string{h + "http": "/", h + "header.Authorization": "Bearer secret\r\nX: 1"})
	checkField(t, err, h+"header.Authorization", "cannot be sent")
	if err != nil && strings.Contains(err.Error(), "secret") {
		t.Errorf("a header's value is quoted: %v", err)
	}
}

// TestLabels: what good ones ask for.
func TestLabels(t *testing.T) {
	for _, c := range []struct {
		labels string
		hc     *container.HealthConfig
		want   Settings
	}{
		{"http=/health", nil, Settings{Kind: HTTP, Path: "/health", Pass: Codes{{200, 399}},
			Interval: 30 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 5 * sec}},
		{"http=/h?a=%20b port=8080 pass=200,204,300-302 header.x-key=a=b header.Host=example.com",
			&container.HealthConfig{Interval: 10 * sec, Timeout: 2 * sec, Retries: 4, StartPeriod: 9 * sec, StartInterval: sec, Test: []string{}},
			Settings{Kind: HTTP, Path: "/h?a=%20b", Port: 8080, Pass: Codes{{200, 200}, {204, 204}, {300, 302}},
				Header:   []Header{{"Host", "example.com"}, {"X-Key", "a=b"}},
				Interval: 10 * sec, Timeout: 2 * sec, Retries: 4, StartPeriod: 9 * sec, StartInterval: sec}},
		{"http=/ http.port=1 http.pass=200 http.header.A=", nil, Settings{Kind: HTTP, Path: "/", Port: 1, Pass: Codes{{200, 200}},
			Header: []Header{{"A", ""}}, Interval: 30 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 5 * sec}},
		{"tcp=5432 unroute-after=4 replace-after=10m first=2m start-limit=300", &container.HealthConfig{Interval: 7 * sec, Test: []string{""}},
			Settings{Kind: TCP, Port: 5432, Interval: 7 * sec, Timeout: 30 * sec, Retries: 4, StartInterval: 5 * sec,
				First: 2 * time.Minute, ReplaceAfter: 86, StartLimit: 5 * time.Minute}},
		{"file=/run/health action=unroute unroute-after=1m", nil, Settings{Kind: File, Path: "/run/health",
			Interval: 30 * sec, Timeout: 30 * sec, Retries: 2, StartInterval: 5 * sec, Action: Unroute}},
		{"action=none", &container.HealthConfig{Test: []string{"CMD", "x"}}, Settings{Argv: []string{"x"},
			Interval: 30 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 5 * sec, Action: None}},
		{"replace-after=3", &container.HealthConfig{Test: []string{"CMD", "x"}}, Settings{Argv: []string{"x"},
			Interval: 30 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 5 * sec}},
		{"http=/ profile=gate", &container.HealthConfig{Interval: 9 * sec}, Settings{Kind: HTTP, Path: "/", Pass: Codes{{200, 200}}, Profile: Gate,
			Interval: 9 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 3 * sec}},
		{"profile=gate", &container.HealthConfig{Test: []string{"CMD", "x"}}, Settings{Argv: []string{"x"}, Profile: Gate,
			Interval: 30 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 3 * sec}},
		{"http=/ profile=gate pass=200-299 unroute-after=2 replace-after=9", nil, Settings{Kind: HTTP, Path: "/", Pass: Codes{{200, 299}}, Profile: Gate,
			Interval: 30 * sec, Timeout: 30 * sec, Retries: 2, ReplaceAfter: 9, StartInterval: 3 * sec}},
		{"profile=automatic", &container.HealthConfig{Test: []string{"CMD", "x"}}, Settings{Argv: []string{"x"}, Profile: Automatic, FixedRate: true,
			Interval: 10 * sec, Timeout: 5 * sec, Retries: 5, StartInterval: 10 * sec, First: 10 * sec, ReplaceAfter: 30, StartLimit: 10 * time.Minute}},
		{"http=/ profile=manual first=0s unroute-after=2 replace-after=1m start-limit=1m", &container.HealthConfig{Timeout: 2 * sec},
			Settings{Kind: HTTP, Path: "/", Pass: Codes{{200, 399}}, Profile: Manual, FixedRate: true,
				Interval: 10 * sec, Timeout: 2 * sec, Retries: 2, StartInterval: 10 * sec, First: AtOnce, ReplaceAfter: 6, StartLimit: time.Minute}},
		{"http=/ profile=manual replace-after=20s unroute-after=1", nil, Settings{Kind: HTTP, Path: "/", Pass: Codes{{200, 399}}, Profile: Manual, FixedRate: true,
			Interval: 10 * sec, Timeout: 5 * sec, Retries: 1, StartInterval: 10 * sec, First: 10 * sec, ReplaceAfter: 5, StartLimit: 10 * time.Minute}},
		// The check that is left of one that is off (a WordPress capsule's).
		{"tcp=80 profile=off", nil, Settings{Kind: TCP, Port: 80, Profile: Off, FixedRate: true,
			Interval: 10 * sec, Timeout: 5 * sec, Retries: 5, StartInterval: 10 * sec, First: 10 * sec, ReplaceAfter: 30, StartLimit: 10 * time.Minute}},
	} {
		if got := resolved(t, c.hc, c.labels); !reflect.DeepEqual(got, c.want) {
			t.Errorf("%q:\n got %+v\nwant %+v", c.labels, got, c.want)
		}
	}
}

// TestAutomaticTable is the table of spec/replica-health.txt, "Check interval".
func TestAutomaticTable(t *testing.T) {
	for _, row := range []struct{ timeout, interval, checks int }{
		{1, 10, 30}, {5, 10, 30}, {10, 10, 30}, {11, 11, 28}, {15, 15, 20}, {30, 30, 10}, {59, 59, 6}, {60, 60, 5},
	} {
		s := resolved(t, &container.HealthConfig{Timeout: time.Duration(row.timeout) * sec}, "http=/health profile=manual")
		if s.Interval != time.Duration(row.interval)*sec || s.Retries != 5 || s.replaceAfter() != row.checks {
			t.Errorf("timeout %d: every %v, out of traffic after %d, replaced after %d; want %+v", row.timeout, s.Interval, s.Retries, s.replaceAfter(), row)
		}
		if covered := SustainedReplace(s); covered < AutomaticReplace {
			t.Errorf("timeout %d: %v is less than 5 minutes", row.timeout, covered)
		}
	}
}

func TestOff(t *testing.T) {
	for _, c := range []struct {
		labels  string
		hc      *container.HealthConfig
		warning bool
	}{
		{"profile=off", nil, false},
		{"profile=false", nil, false},
		{"profile=off", &container.HealthConfig{Test: []string{"NONE"}}, false},
		{"profile=off http=/x", nil, true},
		{"profile=off file=/x first=9s", nil, true},
		{"profile=off", &container.HealthConfig{Test: []string{"CMD", "x"}}, true},
	} {
		s, ok, warnings, err := FromSpec(c.hc, labelsOf(c.labels))
		if ok || err != nil || len(warnings) > 0 != c.warning || !reflect.DeepEqual(s, Settings{}) {
			t.Errorf("%q: %+v, ok %v, warnings %q, error %v", c.labels, s, ok, warnings, err)
		}
	}
}

// TestLabelsAreTheirOwn: nobody else's label makes a probe, or an error.
func TestLabelsAreTheirOwn(t *testing.T) {
	for _, labels := range []map[string]string{nil, {}, {"satl.traffic.drain": "5s"}, {"satl.health": "x"}, {"com.docker.stack.namespace": "shop"}} {
		if s, ok, warnings, err := FromSpec(nil, labels); ok || err != nil || warnings != nil {
			t.Errorf("%v: %+v %v %q %v", labels, s, ok, warnings, err)
		}
	}
	for _, name := range []string{"http", "http.port", "http.pass", "http.header.X", "port", "pass", "header.X", "tcp", "file",
		"first", "unroute-after", "replace-after", "start-limit", "profile", "action"} {
		if !IsLabel(LabelPrefix + name) {
			t.Errorf("%s is not known", name)
		}
	}
	for _, name := range []string{"", "satl.health", "satl.health.", "satl.health.replace-parallelism", "satl.health.http.", "satl.health.https", "satl.traffic.drain", "http"} {
		if IsLabel(name) {
			t.Errorf("%s is known", name)
		}
	}
}

func TestWithPort(t *testing.T) {
	s := resolved(t, nil, "http=/x")
	if got, err := s.WithPort(8080); err != nil || got.Port != 8080 {
		t.Errorf("%+v %v", got, err)
	}
	_, err := s.WithPort(0)
	checkField(t, err, LabelPrefix+"http.port", "publishes no port")
	s = resolved(t, nil, "http=/x port=9")
	if got, err := s.WithPort(0); err != nil || got.Port != 9 {
		t.Errorf("%+v %v", got, err)
	}
	s = resolved(t, nil, "file=/x")
	if got, err := s.WithPort(0); err != nil || got.Port != 0 {
		t.Errorf("%+v %v", got, err)
	}
}

// TestLabelsOfOddValues: line ends and spaces, which would make other requests.
func TestLabelsOfOddValues(t *testing.T) {
	for label, value := range map[string]string{
		"http": "/a\r\nX-Evil: 1", "file": "/a\nb", "header.A": "1\r\nX-Evil: 1", "header.Host": "a b",
	} {
		labels := map[string]string{LabelPrefix + "http": "/"}
		if label == "file" {
			labels = map[string]string{}
		}
		labels[LabelPrefix+label] = value
		_, ok, _, err := FromSpec(nil, labels)
		if field := (*FieldError)(nil); ok || !errors.As(err, &field) || field.Field != LabelPrefix+label {
			t.Errorf("%s=%q: %v", label, value, err)
		}
	}
	// The ends of what is allowed.
	s := resolved(t, nil, "http=/!~ header.aZ09!~=!~ first=1ms unroute-after=2147483647")
	if s.Path != "/!~" || s.Header[0].Value != "!~" || s.First != MinDuration || s.Retries != 1<<31-1 {
		t.Errorf("%+v", s)
	}
	if s := resolved(t, timeoutOf(60*sec), "http=/ profile=manual first=600"); s.First != 600*sec || s.Timeout != 60*sec {
		t.Errorf("%+v", s)
	}
}

// TestTightenSpec: a published service's defaults reach probes of labels, and
// only where the profile is Docker's.
func TestTightenSpec(t *testing.T) {
	for _, c := range []struct {
		hc      *container.HealthConfig
		labels  string
		want    *container.HealthConfig
		applied string
	}{
		{nil, "http=/x", &container.HealthConfig{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}, "interval=5s timeout=3s retries=2"},
		{&container.HealthConfig{Interval: 10 * sec}, "http=/x unroute-after=4", &container.HealthConfig{Interval: 10 * sec, Timeout: 10 * sec}, "timeout=10s"},
		{nil, "tcp=1 profile=gate", &container.HealthConfig{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}, "interval=5s timeout=3s retries=2"},
		{&container.HealthConfig{Test: []string{"CMD", "x"}}, "", &container.HealthConfig{Test: []string{"CMD", "x"}, Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}, "interval=5s timeout=3s retries=2"},
		// Thresholds are judged by these defaults, not by Docker's, whose three
		// retries neither of them would reach.
		{nil, "http=/x replace-after=2", &container.HealthConfig{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}, "interval=5s timeout=3s retries=2"},
		{nil, "http=/x replace-after=10s", &container.HealthConfig{Interval: 5 * sec, Timeout: 3 * sec, Retries: 2}, "interval=5s timeout=3s retries=2"},
		{&container.HealthConfig{Test: []string{"NONE"}}, "", &container.HealthConfig{Test: []string{"NONE"}}, ""},
		{nil, "http=/x profile=automatic", nil, ""},
		{nil, "tcp=1 profile=off", nil, ""},
		{nil, "http=x", nil, ""},
		{nil, "", nil, ""},
	} {
		got, applied := TightenSpec(c.hc, labelsOf(c.labels))
		if !reflect.DeepEqual(got, c.want) || applied != c.applied {
			t.Errorf("%q: %+v %q, want %+v %q", c.labels, got, applied, c.want, c.applied)
		}
		if _, ok, _, err := FromSpec(got, labelsOf(c.labels)); ok && err != nil || applied != "" && !ok {
			t.Errorf("%q: with them it is refused: %v", c.labels, err)
		}
	}
}

func TestShown(t *testing.T) {
	hc := &container.HealthConfig{Test: []string{"CMD", "x"}, Interval: 9 * sec}
	want := &container.HealthConfig{Test: []string{"CMD", "x"}, Interval: 9 * sec, Timeout: 30 * sec, Retries: 3, StartInterval: 5 * sec}
	if got := resolved(t, hc, "").Shown(hc); !reflect.DeepEqual(got, want) {
		t.Errorf("%+v", got)
	}
	if got := resolved(t, nil, "tcp=1 profile=off").Shown(nil); got.Interval != 10*sec || got.Test != nil {
		t.Errorf("%+v", got)
	}
}

// FuzzFromSpec: any labels are settings that can be probed with, or an invalid
// argument in ASCII that names one of them.
func FuzzFromSpec(f *testing.F) {
	for _, s := range []string{
		"http=/health", "http=/x\nport=80\npass=200-399,418\nheader.X-A=b", "tcp=80\nprofile=off", "file=/a\nfirst=5m",
		"http=/\nprofile=automatic\nfirst=0", "http=/\nprofile=gate\nreplace-after=5m", "http=/\nunroute-after=2\nreplace-after=9000000h",
		"http=/\nprofile=manual\naction=unroute", "http=/ \nx=1", "tcp=1\nstart-limit=99999h", "header.\u00e9=1\nhttp=/",
	} {
		f.Add(s, int64(0), 0)
		f.Add(s, int64(10*sec), 3)
	}
	f.Fuzz(func(t *testing.T, text string, timeout int64, retries int) {
		labels := make(map[string]string)
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			labels[LabelPrefix+name] = value
		}
		hc := &container.HealthConfig{Timeout: time.Duration(timeout), Retries: retries}
		kept := maps.Clone(labels)
		s, ok, _, err := FromSpec(hc, labels)
		if !maps.Equal(kept, labels) {
			t.Fatal("the labels were changed")
		}
		if err != nil {
			if ok || !errdefs.IsInvalidArgument(err) {
				t.Fatalf("ok %v with %v", ok, err)
			}
			if text := err.Error(); text != plain(text) {
				t.Fatalf("error is not ASCII: %q", text)
			}
			return
		}
		if !ok {
			if !reflect.DeepEqual(s, Settings{}) {
				t.Fatalf("no probe, but %+v", s)
			}
			return
		}
		if s.Retries < 1 || s.replaceAfter() < s.Retries || min(s.Interval, s.Timeout, s.StartInterval) < MinDuration ||
			s.First < 0 || s.StartLimit < 0 || s.StartPeriod < 0 {
			t.Fatalf("settings %+v", s)
		}
		if s.Kind == HTTP {
			lines := strings.Split(string(request(s, own)), "\r\n")
			if len(lines) < 6 || lines[0] != "GET "+s.Path+" HTTP/1.1" || lines[len(lines)-1] != "" || lines[len(lines)-2] != "" {
				t.Fatalf("request %q", lines)
			}
			for _, line := range lines[1 : len(lines)-2] {
				if name, _, ok := strings.Cut(line, ": "); !ok || name == "" || strings.ContainsAny(line, "\r\n") {
					t.Fatalf("header line %q", line)
				}
			}
		}
		if WorstCase(s, 10*sec) < Sustained(s) || WorstReplace(s, 10*sec) < SustainedReplace(s) {
			t.Fatalf("bounds of %+v", s)
		}
		if tightened, applied := TightenSpec(hc, labels); applied != "" {
			_, ok, _, err := FromSpec(tightened, labels)
			if !ok && err == nil || err != nil && !strings.Contains(err.Error(), "out of traffic only after") {
				t.Fatalf("the tighter defaults made it invalid: %v", err)
			}
		}
	})
}
