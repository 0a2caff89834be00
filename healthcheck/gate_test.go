// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
)

// every are times from first on, one every step.
func every(first, step time.Duration, n int) (at []time.Duration) {
	for i := range n {
		at = append(at, first+time.Duration(i)*step)
	}
	return at
}

// TestGate holds the gate to spec/deploy-check.txt, "How the check probes" and
// "When the check ends early".
func TestGate(t *testing.T) {
	after := func(ready time.Duration, before int) func(time.Duration) int {
		return func(at time.Duration) int {
			if at >= ready {
				return 200
			}
			return before
		}
	}
	always := func(code int) func(time.Duration) int { return func(time.Duration) int { return code } }
	const failed = " unhealthy unrouted condemned"
	for _, c := range []struct {
		name     string
		answer   func(time.Duration) int
		control  func(time.Duration) int
		want     string // the first change
		asked    []time.Duration
		controls []time.Duration
		sequence []Run
		by       Answerer
		early    bool
		reason   string
	}{
		{name: "ready at once", answer: always(200), want: "3s healthy", asked: every(3*sec, 3*sec, 1), sequence: []Run{{"200", 1}}, by: Application},
		{name: "503 while it starts", answer: after(100*sec, 503), want: "1m42s healthy", asked: every(3*sec, 3*sec, 34), sequence: []Run{{"503", 33}, {"200", 1}}, by: Application},
		{name: "a path that only redirects fails at the bound", answer: always(302), want: "3m0s" + failed,
			asked: every(3*sec, 3*sec, 59), sequence: []Run{{"302", 59}}, by: Application,
			reason: "unhealthy: health gate not passed within 3m0s, last HTTP 302"},
		{name: "exactly 200", answer: always(204), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"204", 59}}, by: Application},
		{name: "5xx never ends it early", answer: always(500), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"500", 59}}, by: Application},
		{name: "nor does what is refused", answer: always(refused), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"refused", 59}}, by: Nothing},
		{name: "twenty equal 404", answer: always(404), want: "1m0s" + failed, asked: every(3*sec, 3*sec, 20), controls: []time.Duration{60 * sec},
			sequence: []Run{{"404", 20}}, by: Application, early: true,
			reason: "unhealthy: health gate ended early: 20 probes in a row were answered 404"},
		{name: "400 is a client error", answer: always(400), want: "1m0s" + failed, asked: every(3*sec, 3*sec, 20), controls: []time.Duration{60 * sec},
			sequence: []Run{{"400", 20}}, by: Application, early: true},
		{name: "so is 499", answer: always(499), want: "1m0s" + failed, asked: every(3*sec, 3*sec, 20), controls: []time.Duration{60 * sec},
			sequence: []Run{{"499", 20}}, by: Application, early: true},
		{name: "401 after a while of nothing", answer: func(at time.Duration) int {
			if at < 30*sec {
				return refused
			}
			return 401
		}, want: "1m27s" + failed, asked: every(3*sec, 3*sec, 29), controls: []time.Duration{87 * sec},
			sequence: []Run{{"refused", 9}, {"401", 20}}, by: Application, early: true},
		{name: "the control probe meets nobody", answer: always(404), control: always(refused), want: "3m0s" + failed,
			asked: every(3*sec, 3*sec, 59), controls: []time.Duration{60 * sec, 120 * sec}, sequence: []Run{{"404", 59}}, by: Application},
		{name: "the control probe is answered later", answer: always(404), control: func(at time.Duration) int {
			if at < 100*sec {
				return refused
			}
			return 404
		}, want: "2m0s" + failed, asked: every(3*sec, 3*sec, 40), controls: []time.Duration{60 * sec, 120 * sec}, sequence: []Run{{"404", 40}}, by: Application, early: true},
		{name: "the route is mounted as the control probe asks", answer: after(60*sec+1, 404), control: always(200), want: "1m3s healthy",
			asked: every(3*sec, 3*sec, 21), controls: []time.Duration{60 * sec}, sequence: []Run{{"404", 20}, {"200", 1}}, by: Application},
		{name: "408 is no stable error", answer: always(408), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"408", 59}}, by: Application},
		{name: "425 is none", answer: always(425), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"425", 59}}, by: Application},
		{name: "429 is none", answer: always(429), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"429", 59}}, by: Application},
		{name: "any other response starts the count again", answer: func(at time.Duration) int {
			if at == 57*sec { // the 19th
				return 500
			}
			return 404
		}, want: "1m57s" + failed, asked: every(3*sec, 3*sec, 39), controls: []time.Duration{117 * sec},
			sequence: []Run{{"404", 18}, {"500", 1}, {"404", 20}}, by: Application, early: true},
		{name: "another client error does as well", answer: func(at time.Duration) int {
			if at >= 57*sec {
				return 403
			}
			return 404
		}, want: "1m54s" + failed, asked: every(3*sec, 3*sec, 38), controls: []time.Duration{114 * sec},
			sequence: []Run{{"404", 18}, {"403", 20}}, by: Application, early: true},
		{name: "hanging: ten seconds each, at the end what is left", answer: always(hangs0), want: "3m0s" + failed,
			asked: every(3*sec, 10*sec, 18), sequence: []Run{{"timed_out", 18}}, by: Nothing},
		{name: "never less than a second", answer: func(at time.Duration) int {
			if at == 3*sec {
				return 500
			}
			return hangs0
		}, want: "3m0s" + failed, asked: append([]time.Duration{3 * sec}, every(6*sec, 10*sec, 18)...), sequence: []Run{{"500", 1}, {"timed_out", 18}}, by: Nothing},
		{name: "ready at the last probe", answer: after(177*sec, 503), want: "2m57s healthy", asked: every(3*sec, 3*sec, 59), sequence: []Run{{"503", 58}, {"200", 1}}, by: Application},
		{name: "ready too late", answer: after(178*sec, 503), want: "3m0s" + failed, asked: every(3*sec, 3*sec, 59), sequence: []Run{{"503", 59}}, by: Application},
	} {
		t.Run(c.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T, b *bench) {
				a := &app{answer: c.answer, control: c.control}
				hc := &container.HealthConfig{Interval: 30 * sec, Timeout: 7 * sec}
				n := b.run(hc, "http=/health profile=gate", a)
				for len(n.said) == 0 && time.Since(b.t0) < time.Hour {
					b.pass(sec / 2)
				}
				n.heard(c.want)
				if !slices.Equal(a.asked, c.asked) || !slices.Equal(a.controls, c.controls) {
					t.Errorf("asked at %v, controls at %v\nwant     %v, controls at %v", a.asked, a.controls, c.asked, c.controls)
				}
				for i, timeout := range a.timeouts {
					if want := min(10*sec, max(sec, 180*sec-a.asked[i])); timeout != want {
						t.Errorf("timeout of the probe at %v is %v, want %v", a.asked[i], timeout, want)
					}
				}
				e := n.last.Evidence
				if !reflect.DeepEqual(e.ProbeSequence, c.sequence) || e.AnsweredBy != c.by || e.EndedEarly != c.early {
					t.Errorf("evidence %+v", e)
				}
				if c.reason != "" && n.last.Condemned != c.reason {
					t.Errorf("reason %q, want %q", n.last.Condemned, c.reason)
				}
			})
		})
	}
}

// TestGateTimeout: ten seconds, near the bound what is left, never less than one.
func TestGateTimeout(t *testing.T) {
	s := resolved(t, timeoutOf(7*sec), "http=/ profile=gate")
	for at, want := range map[time.Duration]time.Duration{
		0: 10 * sec, 170 * sec: 10 * sec, 171 * sec: 9 * sec, 178500 * time.Millisecond: 1500 * time.Millisecond,
		179 * sec: sec, 179900 * time.Millisecond: sec, 200 * sec: sec,
	} {
		if got := AttemptTimeout(Health{}, s, epoch, epoch.Add(at)); got != want {
			t.Errorf("at %v: %v, want %v", at, got, want)
		}
		if got := AttemptTimeout(Health{EverHealthy: true}, s, epoch, epoch.Add(at)); got != 7*sec {
			t.Errorf("after the gate: %v", got)
		}
	}
	// A pass that its last second brought is one.
	h := Fold(Health{}, s, epoch, Result{Start: epoch.Add(179 * sec), End: epoch.Add(180500 * time.Millisecond)})
	if h.Status != Healthy || h.Condemned != "" {
		t.Errorf("%+v", h)
	}
}

// TestGateLeavesTheRest: after a gate its task is probed as the rest of the
// settings say; one that failed it is asked no more, and stays failed.
func TestGateLeavesTheRest(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		a := &app{answer: func(at time.Duration) int {
			if at < 60*sec {
				return 200
			}
			return 404
		}}
		hc := &container.HealthConfig{Interval: 20 * sec, Timeout: 7 * sec, Retries: 2}
		n := b.run(hc, "http=/health profile=gate", a)
		b.pass(10 * time.Minute)
		if len(n.said) < 2 || !slices.Equal(n.said[:2], []string{"3s healthy", "1m23s unhealthy unrouted condemned"}) || len(a.controls) != 0 {
			t.Errorf("changes %q, controls %v", n.said, a.controls)
		}
		if !slices.Equal(a.asked[:5], []time.Duration{3 * sec, 23 * sec, 43 * sec, 63 * sec, 83 * sec}) || a.timeouts[1] != 7*sec {
			t.Errorf("asked at %v, timeouts %v", a.asked, a.timeouts)
		}
	})
	inBubble(t, func(t *testing.T, b *bench) {
		a := statuses(404)
		n := b.run(nil, "http=/health profile=gate", a)
		b.pass(61 * sec)
		a.answer = func(time.Duration) int { return 200 }
		b.pass(time.Hour)
		n.heard("1m0s unhealthy unrouted condemned")
		if h := b.health("a"); len(a.asked) != 20 || !h.NextProbe.IsZero() || h.Condemned == "" {
			t.Errorf("asked %d times, %+v", len(a.asked), h)
		}
		h := Fold(b.health("a"), resolved(t, nil, "http=/health profile=gate"), b.t0, Result{Start: time.Now(), End: time.Now()})
		if h.Status != Unhealthy || h.Condemned == "" {
			t.Errorf("a pass after the gate: %+v", h)
		}
	})
}

// TestGateOfACommand: the same times and record, with exit codes in place of
// statuses; it never ends early.
func TestGateOfACommand(t *testing.T) {
	inBubble(t, func(t *testing.T, b *bench) {
		s := resolved(t, &container.HealthConfig{Test: []string{"CMD", "x"}}, "profile=gate")
		var last Transition
		p := &probe{do: func(_ context.Context, n int) int { return map[bool]int{true: 7, false: 1}[n > 10] }}
		b.Watch(Watch{ID: "a", Settings: s, Probe: p, Started: time.Now(), Changed: func(t Transition) { last = t }})
		b.pass(181 * sec)
		if last.To != Unhealthy || last.Last.ExitCode != 7 || p.count() != 59 {
			t.Fatalf("%+v after %d probes", last, p.count())
		}
		text, err := json.Marshal(last.Health.Evidence)
		if err != nil {
			t.Fatal(err)
		}
		if want := `{"probe_sequence":[{"result":"exit 1","count":10},{"result":"exit 7","count":49}],"last":{"exit_code":7},"answered_by":"unknown","compute":null,"console":null,"ended_early":false}`; string(text) != want {
			t.Errorf("record %s", text)
		}
		if detail := Detail(last.Health.Evidence); !strings.HasPrefix(detail, "The probe command fails with exit code 7") || !strings.HasSuffix(detail, "exit 1 x 10, exit 7 x 49.") {
			t.Errorf("detail %q", detail)
		}
	})
}

func TestEvidenceKeepsSixteenRuns(t *testing.T) {
	var e Evidence
	var seen []Evidence
	for i := range 40 {
		for range i%2 + 1 {
			e = e.with(Result{ExitCode: 1, Word: fmt.Sprint(500 + i)})
		}
		seen = append(seen, e)
	}
	before := e
	e = e.with(Result{ExitCode: 1, Word: "539"})
	if last := before.ProbeSequence[15]; last.Count != 2 {
		t.Errorf("a run that goes on changed what a reader was given: %v", last)
	}
	e = before
	if n := len(e.ProbeSequence); n != MaxRuns || e.ProbeSequence[0] != (Run{"524", 1}) || e.ProbeSequence[15] != (Run{"539", 2}) {
		t.Errorf("%d runs: %v", n, e.ProbeSequence)
	}
	for i, old := range seen { // what a reader was given earlier has not changed
		if last := old.ProbeSequence[len(old.ProbeSequence)-1]; last != (Run{fmt.Sprint(500 + i), i%2 + 1}) {
			t.Fatalf("the evidence after run %d ends with %v", i, last)
		}
	}
}

// TestTail: forty lines, 4096 bytes, whichever is less, and it says when it cut.
func TestTail(t *testing.T) {
	lines := func(n, length int) (l []string) {
		for i := range n {
			l = append(l, fmt.Sprintf("%0*d\n", length, i))
		}
		return l
	}
	for _, c := range []struct {
		name      string
		lines     []string
		want      int
		first     string
		truncated bool
	}{
		{"none", nil, 0, "", false},
		{"few", lines(3, 2), 3, "00", false},
		{"forty", lines(40, 2), 40, "00", false},
		{"forty-one", lines(41, 2), 40, "01", true},
		{"long ones", lines(40, 200), 21, "", true},
		{"one that just fits", []string{strings.Repeat("x", MaxConsoleBytes-1)}, 1, strings.Repeat("x", MaxConsoleBytes-1), false},
		{"one that is too long", []string{strings.Repeat("\u00e9", 5000)}, 1, strings.Repeat("\u00e9", 2047), true},
		{"what is no text", []string{"a\xffb\r\n"}, 1, "a?b", false},
	} {
		t.Run(c.name, func(t *testing.T) {
			got := Tail(c.lines)
			size := 0
			for _, l := range got.Lines {
				size += len(l) + 1
			}
			if got.Lines == nil || len(got.Lines) != c.want || size > MaxConsoleBytes || got.Truncated != c.truncated || (got.Note != "") != (c.want == 0) {
				t.Fatalf("%d lines of %d bytes, truncated %v, note %q", len(got.Lines), size, got.Truncated, got.Note)
			}
			if c.first != "" && got.Lines[0] != c.first {
				t.Errorf("first line %.40q", got.Lines[0])
			}
		})
	}
}

// TestDetail: it opens with the cause and its remedy, and has nothing of what
// the task said in it.
func TestDetail(t *testing.T) {
	const secret = "postgres://admin:hunter2@db.internal:5432"
	code := 1
	run := func(word string) []Run { return []Run{{word, 3}} }
	for _, c := range []struct {
		e     Evidence
		opens string
		holds string
	}{
		{Evidence{}, "The task ended before its first probe", ""},
		{Evidence{ProbeSequence: []Run{{"refused", 4}, {"404", 20}}, EndedEarly: true}, "No route at the health path", "refused x 4, 404 x 20. The check ended early"},
		{Evidence{ProbeSequence: run("302"), Last: &Answer{Status: 302, Body: secret}}, "The health path redirects", "was a redirect (302), and the check does not follow it"},
		{Evidence{ProbeSequence: []Run{{"301", 2}, {"timed_out", 9}}, Last: &Answer{Status: 301}}, "No response began in time", "was a redirect (301)"},
		{Evidence{ProbeSequence: run("refused")}, "Nothing listens at the probed port", "refused x 3"},
		{Evidence{ProbeSequence: run("503"), Last: &Answer{Status: 503, ContentType: secret, Body: secret}}, "The application said until the end that it is not ready", ""},
		{Evidence{ProbeSequence: run("500")}, "The application fails at the health path (500)", ""},
		{Evidence{ProbeSequence: run("400")}, "The application does not accept the request (400)", "Host header"},
		{Evidence{ProbeSequence: run("401")}, "The health path asks for credentials (401)", ""},
		{Evidence{ProbeSequence: run("405")}, "The health path does not accept GET", ""},
		{Evidence{ProbeSequence: run("429")}, "The application puts the check off (429)", ""},
		{Evidence{ProbeSequence: run("418")}, "The application refuses the check with a client error (418)", ""},
		{Evidence{ProbeSequence: run("204")}, "The health path answers with 204", ""},
		{Evidence{ProbeSequence: run("200")}, "The last probe passed", ""},
		{Evidence{ProbeSequence: run("reset")}, "The application broke the connection off", "TLS"},
		{Evidence{ProbeSequence: run("stale")}, "The status file is not kept up to date", ""},
		{Evidence{ProbeSequence: run("exit 127"), Last: &Answer{ExitCode: &code, Output: secret}}, "The probe command was not found", ""},
		{Evidence{ProbeSequence: run("exit 22")}, "The probe command fails with exit code 22", ""},
		{Evidence{ProbeSequence: run("refused"), Compute: &Compute{State: "exited", ExitCode: &code}, Console: &Console{Lines: []string{secret}}}, "The process ended with exit code 1", "refused x 3"},
		{Evidence{ProbeSequence: run("refused"), Compute: &Compute{State: "exited", OOMKilled: true}}, "The task was killed because it ran out of memory", ""},
		{Evidence{ProbeSequence: run("refused"), Compute: &Compute{Unavailable: "gone"}}, "Nothing listens", ""},
	} {
		got := Detail(c.e)
		if !strings.HasPrefix(got, c.opens) || !strings.Contains(got, c.holds) || strings.Contains(got, "hunter2") || got != plain(got) {
			t.Errorf("%+v:\n%s", c.e, got)
		}
	}
	for word := range wordCauses {
		if got := Detail(Evidence{ProbeSequence: run(word)}); got != plain(got) || len(got) < 40 {
			t.Errorf("%s: %s", word, got)
		}
	}
}
