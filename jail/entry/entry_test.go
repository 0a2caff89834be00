// SPDX-License-Identifier: BSD-2-Clause

package entry

import (
	"bytes"
	"reflect"
	"testing"
)

var full = Request{
	Argv: []string{"sh", "-c", "echo"}, Env: []string{"A=1", ""}, Cwd: "/tmp", UID: 1, GID: 2, Groups: []uint32{3, 4},
	Bounding: 1 << 40, Effective: 5, Permitted: 6, Inherit: 7, Ambient: 8, NoNewPrivs: true,
	Rlimits: []Rlimit{{7, 1024, 1 << 60}}, Leaf: true, Kill: true, Tasks: 9,
}

func TestRequestRoundTrip(t *testing.T) {
	b := full.Encode()
	if int(Length(b)) != len(b)-4 {
		t.Fatalf("length %d of %d", Length(b), len(b))
	}
	got, err := DecodeRequest(b[4:])
	if err != nil || !reflect.DeepEqual(*got, full) {
		t.Fatalf("%+v, %v", got, err)
	}
	for cut := range len(b) - 4 {
		if _, err := DecodeRequest(b[4 : 4+cut]); err == nil {
			t.Fatalf("a request cut to %d bytes was taken", cut)
		}
	}
}

func TestReportRoundTrip(t *testing.T) {
	want := Report{Kind: Failed, Value: 77, Text: "no such file"}
	if got, err := DecodeReport(want.Encode()[4:]); err != nil || got != want {
		t.Fatalf("%+v, %v", got, err)
	}
	if _, err := DecodeReport(nil); err == nil {
		t.Fatal("nothing was taken for a report")
	}
}

func FuzzDecodeRequest(f *testing.F) {
	f.Add(full.Encode()[4:])
	f.Fuzz(func(t *testing.T, b []byte) {
		r, err := DecodeRequest(b)
		if err != nil {
			return
		}
		again, err := DecodeRequest(r.Encode()[4:])
		if err != nil || !bytes.Equal(again.Encode(), r.Encode()) {
			t.Fatalf("%+v does not survive: %v", r, err)
		}
	})
}
