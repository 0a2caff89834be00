// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Sizes of the record that a failed deploy keeps (spec/deploy-check.txt, "The
// evidence a failed check keeps").
const (
	MaxRuns         = 16
	MaxBody         = 512
	MaxConsoleLines = 40
	MaxConsoleBytes = 4096
)

// Evidence is what a failed deploy leaves to find out why: the `gate` of its
// record. Fold fills in all but Compute and Console, which are the executor's.
// A command's results stand where those of HTTP would.
type Evidence struct {
	// ProbeSequence is what the probes met, the last MaxRuns runs of it.
	ProbeSequence []Run `json:"probe_sequence"`
	// Last is the last response that did not pass; null where there was none.
	Last *Answer `json:"last"`
	// AnsweredBy is who gave the last answer.
	AnsweredBy Answerer `json:"answered_by"`
	// Compute is the task when it failed; null where nobody filled it in.
	Compute *Compute `json:"compute"`
	// Console is the end of the task's output; null likewise.
	Console *Console `json:"console"`
	// EndedEarly: a stable client error of the task's own ended the gate.
	EndedEarly bool `json:"ended_early"`
}

// Run is a number of probes in a row that met the same.
type Run struct {
	// Result is an HTTP status ("404"), a word of the connection ("refused",
	// "timed_out", "reset", "closed", "unreachable", "malformed", "failed";
	// "connected" for TCP), a word of the status file, or "exit 1".
	Result string `json:"result"`
	Count  int    `json:"count"`
}

// Answer is a response that did not pass: of HTTP, or of a command.
type Answer struct {
	Status      int    `json:"status,omitempty"`
	ContentType string `json:"content_type,omitempty"`
	Body        string `json:"body,omitempty"` // of a response of the task's own: valid UTF-8, the first MaxBody bytes

	ExitCode *int   `json:"exit_code,omitempty"`
	Output   string `json:"output,omitempty"` // valid UTF-8, the first MaxBody bytes
}

// Answerer is who answered a probe, as far as it can be told. A probe of HTTP
// or TCP dials the task's own address in the task's own network stack, where
// nothing but the task listens: what answers there is the application. That
// cannot be told of a task in the host's network, nor from a command's exit
// code. An Intermediary is never met on a network of this program's own; the
// word is kept for what may one day stand in front of a task.
type Answerer string

const (
	Application  Answerer = "application"
	Intermediary Answerer = "intermediary"
	Nothing      Answerer = "nothing"
	Unknown      Answerer = "unknown"
)

// Compute is the state of a task and how often its slot was restarted, or why
// they could not be read.
type Compute struct {
	State       string `json:"state,omitempty"` // "running", "exited"
	ExitCode    *int   `json:"exit_code,omitempty"`
	OOMKilled   bool   `json:"oom_killed,omitempty"`
	Restarts    int    `json:"restarts"`
	Unavailable string `json:"unavailable,omitempty"` // a cause word in place of the others
}

// Console is the end of a task's output.
type Console struct {
	Lines     []string `json:"lines"` // the oldest first; valid UTF-8
	Truncated bool     `json:"truncated"`
	Note      string   `json:"note,omitempty"` // why there are no lines
}

// Tail keeps the end of a task's output: MaxConsoleLines lines, and of those
// what fits in MaxConsoleBytes with an end of line each. Truncated tells that
// the limits cut something of lines; whoever read no more than the last lines
// of a longer log passes one more than are kept.
func Tail(lines []string) *Console {
	c := &Console{Lines: []string{}}
	room := MaxConsoleBytes
	for _, line := range slices.Backward(lines) {
		line = strings.ToValidUTF8(strings.TrimRight(line, "\r\n"), "?")
		if len(c.Lines) == MaxConsoleLines || room <= 1 {
			c.Truncated = true
			break
		}
		if cut := len(line) - (room - 1); cut > 0 {
			line, c.Truncated = strings.ToValidUTF8(line[cut:], ""), true
		}
		room -= len(line) + 1
		c.Lines = append(c.Lines, line)
		if c.Truncated {
			break
		}
	}
	slices.Reverse(c.Lines)
	if len(c.Lines) == 0 {
		c.Note = "the task has printed nothing"
	}
	return c
}

// with is the evidence with one more result; readers hold the old one.
func (e Evidence) with(r Result) Evidence {
	runs, word := e.ProbeSequence, r.word()
	if last := len(runs) - 1; last >= 0 && runs[last].Result == word {
		runs = slices.Clone(runs)
		runs[last].Count++
	} else {
		runs = append(slices.Clone(runs[max(0, len(runs)-MaxRuns+1):]), Run{word, 1})
	}
	e.ProbeSequence = runs
	e.AnsweredBy = answerer(r.By)
	switch {
	case r.Passed():
	case r.Answer != nil:
		e.Last = r.Answer
	case r.Word == "": // a command's
		code := r.ExitCode
		e.Last = &Answer{ExitCode: &code, Output: head(r.Output, MaxBody)}
	}
	return e
}

// stableRefusal tells whether r completes GateRun equal client errors, or a
// multiple of them, that a gate may end on.
func (e Evidence) stableRefusal(r Result) bool {
	if r.Answer == nil || r.Answer.Status < 400 || r.Answer.Status > 499 || slices.Contains([]int{408, 425, 429}, r.Answer.Status) {
		return false
	}
	return e.ProbeSequence[len(e.ProbeSequence)-1].Count%GateRun == 0
}

// word is what a result is in a sequence.
func (r Result) word() string {
	if r.Word != "" {
		return r.Word
	}
	return "exit " + strconv.Itoa(r.ExitCode)
}

// words say what the last probe of a failed task met, on one line of ASCII.
func (r Result) words() string {
	text := fmt.Sprintf("last exit code %d: ", r.ExitCode)
	if r.Word != "" {
		text = "last "
	}
	return strings.TrimSuffix(text+excerpt(r.Output), ": ")
}

// answerer is Unknown where nobody could tell.
func answerer(a Answerer) Answerer {
	if a == "" {
		return Unknown
	}
	return a
}

// head is the first n bytes of a text that is valid UTF-8, and so is it.
func head(text string, n int) string {
	if len(text) <= n {
		return text
	}
	return string(trimPartial([]byte(text[:n])))
}
