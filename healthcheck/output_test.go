// SPDX-License-Identifier: BSD-2-Clause

package healthcheck

import (
	"bytes"
	"strings"
	"sync"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"
)

func TestOutput(t *testing.T) {
	full := strings.Repeat("x", MaxOutput)
	for _, c := range []struct{ name, in, want string }{
		{"nothing", "", ""},
		{"short", "ok\n", "ok\n"},
		{"just fits", full, full},
		{"cut", full + "y", full},
		{"a character cut in two is dropped", full[1:] + "\u20ac", full[1:]},
		{"also where its replacement would fit", full[3:] + "\U0001f600", full[3:]},
		{"a character that just fits stays", full[3:] + "\u20ac" + "y", full[3:] + "\u20ac"},
		{"not UTF-8", "a\xffb\xc3", "a\ufffdb\ufffd"},
		{"replacing does not outgrow the limit", strings.Repeat("\xffa", MaxOutput/2), strings.Repeat("\ufffda", MaxOutput/4)},
	} {
		t.Run(c.name, func(t *testing.T) {
			var o output
			if n, err := o.Write([]byte(c.in)); n != len(c.in) || err != nil {
				t.Errorf("wrote %d, %v", n, err)
			}
			if got := o.String(); got != c.want {
				t.Errorf("got %d bytes %.60q, want %d bytes %.60q", len(got), got, len(c.want), c.want)
			}
		})
	}
}

func TestOutputProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var o output
		var all []byte
		for _, part := range rapid.SliceOfN(rapid.SliceOfN(rapid.Byte(), 0, 3000), 0, 5).Draw(t, "parts") {
			o.Write(part)
			all = append(all, part...)
		}
		got := o.String()
		if len(got) > MaxOutput || !utf8.ValidString(got) {
			t.Fatalf("%d bytes, valid %v", len(got), utf8.ValidString(got))
		}
		if utf8.Valid(all) && !bytes.HasPrefix(all, []byte(got)) {
			t.Fatalf("%q is not the head of %q", got, all)
		}
		if utf8.Valid(all) && len(all) <= MaxOutput && got != string(all) {
			t.Fatalf("got %q of %q", got, all)
		}
	})
}

// TestOutputOfHundredsOfMegabytes: cases/probe.md, probe-4.
func TestOutputOfHundredsOfMegabytes(t *testing.T) {
	var o output
	chunk := bytes.Repeat([]byte("y\n"), 16<<10)
	var streams sync.WaitGroup
	for range 2 {
		streams.Go(func() {
			for range 300_000_000 / 2 / len(chunk) {
				o.Write(chunk)
			}
		})
	}
	streams.Wait()
	if len(o.String()) != MaxOutput || cap(o.kept) > 4*MaxOutput {
		t.Errorf("kept %d bytes in %d", len(o.String()), cap(o.kept))
	}
}
