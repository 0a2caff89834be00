// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Kind is how a task is asked.
type Kind int

const (
	// Exec runs a command inside the task: exit code 0 passes.
	Exec Kind = iota
	// HTTP sends a GET to the task's own address.
	HTTP
	// TCP opens a connection to the task's own address.
	TCP
	// File reads a status file of the task.
	File
)

// String is the kind's word.
func (k Kind) String() string { return word(k, "exec", "http", "tcp", "file") }

// Profile is a preset of settings.
type Profile int

const (
	// Docker is Docker's semantics, and the default.
	Docker Profile = iota
	// Automatic is spec/replica-health.txt with its recommended timings.
	Automatic
	// Manual is Automatic under the name that document gives it once the
	// timings are one's own.
	Manual
	// Gate is spec/deploy-check.txt until the first pass, and Docker after it.
	Gate
	// Off is no probe; with a TCP port, the check that is left of one.
	Off
)

// String is the profile's word in the label.
func (p Profile) String() string { return word(p, profiles...) }

var profiles = []string{"docker", "automatic", "manual", "gate", "off"}

// Action is what an unhealthy verdict does.
type Action int

const (
	// Replace takes the task out of traffic and has it replaced.
	Replace Action = iota
	// Unroute takes it out of traffic until it passes, and never replaces a
	// task that has passed once. A limit on its start holds all the same.
	Unroute
	// None only shows it, as Docker does.
	None
)

// String is the action's word in the label.
func (a Action) String() string { return word(a, actions...) }

var actions = []string{"replace", "unroute", "none"}

// word names a small number.
func word[N ~int](n N, words ...string) string {
	if n < 0 || int(n) >= len(words) {
		return fmt.Sprintf("%T(%d)", n, int(n))
	}
	return words[n]
}

// Header is a header field that an HTTP probe sends.
type Header struct{ Name, Value string }

// Codes are HTTP status codes that pass, as ranges.
type Codes []CodeRange

// CodeRange is every status code from Low to High.
type CodeRange struct{ Low, High int }

// Contains tells whether a status code is one of them.
func (c Codes) Contains(code int) bool {
	return slices.ContainsFunc(c, func(r CodeRange) bool { return r.Low <= code && code <= r.High })
}

// String is the form that the label has: "200-399,418".
func (c Codes) String() string {
	texts := make([]string, len(c))
	for i, r := range c {
		texts[i] = strconv.Itoa(r.Low)
		if r.High != r.Low {
			texts[i] += "-" + strconv.Itoa(r.High)
		}
	}
	return strings.Join(texts, ",")
}

// parseCodes reads a list of codes and ranges: "200,204,300-399".
func parseCodes(text string) (Codes, error) {
	var codes Codes
	for part := range strings.SplitSeq(text, ",") {
		low, high, ranged := strings.Cut(strings.TrimSpace(part), "-")
		if !ranged {
			high = low
		}
		from, err := parseCode(low)
		if err != nil {
			return nil, err
		}
		to, err := parseCode(high)
		if err != nil {
			return nil, err
		}
		if from > to {
			return nil, fmt.Errorf("%d-%d is no range", from, to)
		}
		codes = append(codes, CodeRange{from, to})
	}
	return codes, nil
}

// parseCode reads one status code that can be final: 200 to 599.
func parseCode(text string) (int, error) {
	code, err := strconv.ParseUint(text, 10, 16)
	if err != nil || code < 200 || code > 599 {
		return 0, fmt.Errorf("%+q is no status code from 200 to 599", text)
	}
	return int(code), nil
}
