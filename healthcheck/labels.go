// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"fmt"
	"maps"
	"net/textproto"
	"slices"
	"strconv"
	"strings"
	"time"
)

// The container labels that carry what Docker's Healthcheck has no field for.
// A label is part of the task's spec: changing one redeploys the service.
const (
	LabelPrefix = "satl.health."

	labelHTTP       = LabelPrefix + "http"
	labelPort       = LabelPrefix + "http.port"
	labelPass       = LabelPrefix + "http.pass"
	labelHeader     = LabelPrefix + "http.header." // + name
	labelTCP        = LabelPrefix + "tcp"
	labelFile       = LabelPrefix + "file"
	labelFirst      = LabelPrefix + "first"
	labelUnroute    = LabelPrefix + "unroute-after"
	labelReplace    = LabelPrefix + "replace-after"
	labelStartLimit = LabelPrefix + "start-limit"
	labelProfile    = LabelPrefix + "profile"
	labelAction     = LabelPrefix + "action"
)

// aliases are the short names of what belongs to satl.health.http; one that
// ends in a dot stands for all that begin with it.
var aliases = map[string]string{
	LabelPrefix + "port":    labelPort,
	LabelPrefix + "pass":    labelPass,
	LabelPrefix + "header.": labelHeader,
}

// IsLabel tells whether a container label is one that this package reads.
func IsLabel(label string) bool {
	var l labelled
	return l.set(canonical(label), label, "") != unknown
}

const unknown = "is unknown"

// threshold is failures in a row, as a count or as the time they cover.
type threshold struct {
	failures int
	cover    time.Duration
}

// count is the failures in a row at one probe an interval, at least least.
func (t threshold) count(interval time.Duration, least int) int {
	if t.cover > 0 {
		whole := t.cover / interval
		if t.cover%interval != 0 {
			whole++
		}
		return max(int(whole), least)
	}
	return t.failures
}

// labelled is what the labels ask for, each checked for itself.
type labelled struct {
	any       string // one of the labels given, "" where there is none
	kind      Kind
	kindLabel string // the label that says what the probe is, "" where none does

	path   string
	port   uint16
	pass   Codes
	header []Header

	first      *time.Duration
	unroute    *threshold
	replace    *threshold
	startLimit time.Duration
	profile    Profile
	action     Action
}

// parseLabels reads the labels of this package; an unknown one is an error, as
// is what belongs to a probe that is not there. err is a *FieldError.
func parseLabels(labels map[string]string) (labelled, error) {
	var l labelled
	given := make(map[string]string) // by canonical name: the label as it was given
	for _, label := range slices.Sorted(maps.Keys(labels)) {
		if !strings.HasPrefix(label, LabelPrefix) {
			continue
		}
		if l.any == "" {
			l.any = label
		}
		name := canonical(label)
		if other, twice := given[name]; twice {
			return labelled{}, &FieldError{label, fmt.Sprintf("says the same as %s", other)}
		}
		given[name] = label
		if problem := l.set(name, label, labels[label]); problem != "" {
			return labelled{}, &FieldError{label, problem}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if l.kind != HTTP && strings.HasPrefix(name, labelHTTP+".") {
			return labelled{}, &FieldError{given[name], "needs " + labelHTTP}
		}
	}
	return l, nil
}

// canonical is a label's one name: aliases resolved, the header in the form it
// is sent in.
func canonical(label string) string {
	if name, ok := aliases[label]; ok {
		return name
	}
	for short, long := range aliases {
		if rest, ok := strings.CutPrefix(label, short); ok && strings.HasSuffix(short, ".") {
			label = long + rest
		}
	}
	if name, ok := strings.CutPrefix(label, labelHeader); ok {
		return labelHeader + textproto.CanonicalMIMEHeaderKey(name)
	}
	return label
}

// set takes one label by its canonical name; problem is "" or what is wrong
// with its value.
func (l *labelled) set(name, label, value string) (problem string) {
	switch name {
	case labelHTTP:
		l.path = value
		return either(l.is(HTTP, label), badPath(value))
	case labelTCP:
		problem = l.setPort(value)
		return either(l.is(TCP, label), problem)
	case labelFile:
		l.path = value
		return either(l.is(File, label), badPath(value))
	case labelPort:
		return l.setPort(value)
	case labelPass:
		codes, err := parseCodes(value)
		if err != nil {
			return fmt.Sprintf("must be a list such as 200-399,418: %v", err)
		}
		l.pass = codes
	case labelFirst:
		first, ok := parseTime(value)
		if !ok || first != 0 && first < MinDuration {
			return "must be a time such as 10s or 5m" + not(value)
		}
		l.first = &first
	case labelUnroute, labelReplace:
		t, problem := parseThreshold(value)
		if problem != "" {
			return problem
		}
		if name == labelUnroute {
			l.unroute = &t
		} else {
			l.replace = &t
		}
	case labelStartLimit:
		limit, ok := parseTime(value)
		if !ok || limit < MinDuration {
			return "must be a time such as 10m, longer than 0" + not(value)
		}
		l.startLimit = limit
	case labelProfile:
		if value == "false" { // what YAML makes of an off without quotes
			value = Off.String()
		}
		i := slices.Index(profiles, value)
		if i < 0 {
			return "must be one of " + strings.Join(profiles, ", ") + not(value)
		}
		l.profile = Profile(i)
	case labelAction:
		i := slices.Index(actions, value)
		if i < 0 {
			return "must be one of " + strings.Join(actions, ", ") + not(value)
		}
		l.action = Action(i)
	default:
		header, ok := strings.CutPrefix(name, labelHeader)
		if !ok {
			return unknown
		}
		return l.setHeader(header, value)
	}
	return ""
}

// is says what the probe is; a task has one.
func (l *labelled) is(kind Kind, label string) (problem string) {
	if l.kindLabel != "" {
		return fmt.Sprintf("contradicts %s: a task has one probe", l.kindLabel)
	}
	l.kind, l.kindLabel = kind, label
	return ""
}

func (l *labelled) setPort(value string) (problem string) {
	port, err := strconv.ParseUint(value, 10, 16)
	if err != nil || port == 0 {
		return "must be a port from 1 to 65535" + not(value)
	}
	l.port = uint16(port)
	return ""
}

// framing are the header fields that say where a message ends, or change what
// the connection speaks: they are the probe's own.
var framing = []string{"Connection", "Content-Length", "Expect", "Keep-Alive", "Proxy-Connection", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// setHeader takes a header field. Its value is quoted nowhere: it may be a secret.
func (l *labelled) setHeader(name, value string) (problem string) {
	switch {
	case name == "" || strings.ContainsFunc(name, func(r rune) bool { return !tokenChar(r) }):
		return "names no header field"
	case slices.Contains(framing, name):
		return "is the probe's own affair"
	case strings.ContainsFunc(value, func(r rune) bool { return r < ' ' || r > '~' }),
		value != strings.TrimSpace(value),
		name == "Host" && (value == "" || strings.ContainsAny(value, " /")):
		return "has a value that cannot be sent"
	}
	l.header = append(l.header, Header{name, value})
	return ""
}

// tokenChar tells whether a character may be in a header field's name (RFC
// 9110, section 5.6.2).
func tokenChar(r rune) bool {
	return 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z' || '0' <= r && r <= '9' || strings.ContainsRune("!#$%&'*+-.^_`|~", r)
}

// badPath is what is wrong with an HTTP request target or a file's path.
// Rule: spec/replica-health.txt, "Endpoint".
func badPath(path string) (problem string) {
	switch {
	case !strings.HasPrefix(path, "/"):
		return "must start with /"
	case strings.Contains(path, " "):
		return "cannot contain spaces"
	case strings.ContainsFunc(path, func(r rune) bool { return r < ' ' || r > '~' || r == '#' }):
		return "cannot contain # or what is not printable ASCII"
	}
	return ""
}

// parseThreshold reads a count of failures, or the time they are to cover.
func parseThreshold(value string) (t threshold, problem string) {
	if n, err := strconv.ParseInt(value, 10, 32); err == nil && n >= 1 {
		return threshold{failures: int(n)}, ""
	}
	if d, err := time.ParseDuration(value); err == nil && d >= MinDuration {
		return threshold{cover: d}, ""
	}
	return threshold{}, "must be failures in a row, at least 1, or a time such as 5m" + not(value)
}

// parseTime reads a duration; a bare number is seconds.
func parseTime(value string) (d time.Duration, ok bool) {
	if n, err := strconv.ParseUint(value, 10, 31); err == nil {
		return time.Duration(n) * time.Second, true
	}
	d, err := time.ParseDuration(value)
	return d, err == nil && d >= 0
}

func not(value string) string {
	if len(value) > 64 {
		value = value[:64]
	}
	return fmt.Sprintf(", not %+q", value)
}

func either(problem, other string) string {
	if problem != "" {
		return problem
	}
	return other
}
