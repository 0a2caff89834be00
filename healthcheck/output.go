// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"strings"
	"sync"
	"unicode/utf8"
)

// output keeps the first MaxOutput bytes of what a probe prints and takes the
// rest for nothing, so that a probe which prints hundreds of megabytes costs
// the daemon a copy of 4 KiB (cases/probe.md, probe-4). It is safe for
// concurrent use: a probe's two streams are drained at the same time.
type output struct {
	mu   sync.Mutex
	kept []byte
	cut  bool // more was printed than is kept
}

// Write never fails and never holds the probe up.
func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	room := MaxOutput - len(o.kept)
	if room < len(p) {
		o.cut = true
	}
	o.kept = append(o.kept, p[:min(room, len(p))]...)
	return len(p), nil
}

// String is what was printed so far as valid UTF-8 of at most MaxOutput bytes:
// a character cut in two by the limit is dropped, what is not UTF-8 replaced.
func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	kept := o.kept
	if o.cut {
		kept = trimPartial(kept)
	}
	return clip(string(kept))
}

// clip makes a text fit for Result.Output. Replacing may lengthen it, so the
// limit is applied last.
func clip(text string) string {
	text = strings.ToValidUTF8(text, string(utf8.RuneError))
	if len(text) <= MaxOutput {
		return text
	}
	return string(trimPartial([]byte(text[:MaxOutput])))
}

// trimPartial drops the beginning of a character at the end of text.
func trimPartial(text []byte) []byte {
	for i := len(text) - 1; i >= 0 && i >= len(text)-utf8.UTFMax; i-- {
		if utf8.RuneStart(text[i]) {
			if !utf8.FullRune(text[i:]) {
				return text[:i]
			}
			break
		}
	}
	return text
}
