// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"flag"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"unicode"

	"pgregory.net/rapid"

	"satld/platform/command"
)

var update = flag.Bool("update", false, "write the golden files anew")

func quiet() *slog.Logger { return slog.New(slog.NewTextHandler(io.Discard, nil)) }

// TestParseMountTable reads what FreeBSD 15.1 printed (testdata/mount).
func TestParseMountTable(t *testing.T) {
	table, err := parseMountTable(content(t, "testdata/mount/p.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := []mountEntry{
		{"zroot/ROOT/default", "/", "zfs"},
		{"devfs", "/dev", "devfs"},
		{"/dev/gpt/efiboot0", "/boot/efi", "msdosfs"},
		{"zroot/satl", "/var/db/satl", "zfs"},
		{"zroot/satl/containers/1q8c4zamgo7wdgxj13tcoepua", "/var/db/satl/containers/1q8c4zamgo7wdgxj13tcoepua", "zfs"},
		{"linprocfs", "/var/db/satl/containers/1q8c4zamgo7wdgxj13tcoepua/proc", "linprocfs"},
		{"tmpfs", "/tmp/rtest mount dir/inner", "tmpfs"},
		{"/tmp/rtest src dir", "/tmp/rtest-plainmnt", "nullfs"},
		// A first name of 24 characters and more with a path in it: both readings.
		{"/a directory with a long name", "/in it /mnt", "nullfs"},
		{"/a directory with a long name /in it", "/mnt", "nullfs"},
	}
	if !slices.Equal(table, want) {
		t.Errorf("got %q\nwant %q", table, want)
	}
	run := func(context.Context, command.Command) (string, error) { return content(t, "testdata/mount/p.txt"), nil }
	got, err := toolMountsBelow(run, "/var/db/satl/containers/1q8c4zamgo7wdgxj13tcoepua")
	if err != nil || len(got) != 2 {
		t.Errorf("below a root: %q %v, want the root and its /proc", got, err)
	}
	for _, bad := range []string{"\n", "devfs\n", "devfs /dev devfs rw 0 0\n", "a\tb\tc\t0 0\n"} {
		if table, err := parseMountTable(bad); err == nil {
			t.Errorf("%q is read as %q", bad, table)
		}
	}
}

// putfsent is how mount(8) prints a line (sbin/mount/mount.c).
func putfsent(from, on, kind, opts string) string {
	pad := func(s string) string {
		n := len(s)
		switch {
		case n < 8:
			return s + "\t\t\t"
		case n < 16:
			return s + "\t\t"
		case n < 24:
			return s + "\t"
		}
		return s + " "
	}
	end := " "
	if len(opts) < 8 {
		end = "\t"
	}
	return pad(from) + pad(on) + kind + "\t" + opts + end + "\t0 0\n"
}

// TestMountTableMissesNothing: whatever the names are, the mount point is among
// the readings of its line.
func TestMountTableMissesNothing(t *testing.T) {
	name := rapid.StringMatching(`[a-z /._-]{0,40}`)
	rapid.Check(t, func(t *rapid.T) {
		from := strings.TrimSpace(name.Draw(t, "from"))
		on := "/" + strings.TrimRight(name.Draw(t, "on"), " ")
		if from == "" {
			from = "devfs"
		}
		line := putfsent(from, on, "nullfs", rapid.SampledFrom([]string{"rw", "ro", "rw,noexec,nosuid"}).Draw(t, "opts"))
		table, err := parseMountTable(line)
		if err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		if !slices.Contains(table, mountEntry{from, on, "nullfs"}) {
			t.Fatalf("%q is read as %q, want %q on %q", line, table, from, on)
		}
	})
}

// FuzzMountTable: any output is read or refused.
func FuzzMountTable(f *testing.F) {
	f.Add(putfsent("zroot/satl", "/var/db/satl", "zfs", "rw,nfsv4acls"))
	f.Add("\t\t\t0 0\n")
	f.Fuzz(func(t *testing.T, text string) {
		table, err := parseMountTable(text)
		for _, m := range table {
			if err == nil && (m.on == "" || m.kind == "" || strings.ContainsFunc(m.kind, unicode.IsSpace) && !strings.ContainsAny(m.kind, "\v\f\r\u0085\u00a0\u1680\u2000\u2028\u2029\u202f\u205f\u3000")) {
				t.Errorf("%q is read as %q", text, m)
			}
		}
	})
}

// TestParseDatasets reads a list with every kind of line (testdata/zfs).
func TestParseDatasets(t *testing.T) {
	got, err := parseDatasets(content(t, "testdata/zfs/list.txt"))
	if err != nil {
		t.Fatal(err)
	}
	want := []dataset{
		{name: "zroot/satl/layers", used: 311296, state: "/var/db/satl"},
		{name: "zroot/satl/layers/aaaa1111", used: 102400, state: "/var/db/satl"},
		{name: "zroot/satl/layers/aaaa1111@final", state: "/var/db/satl"},
		{name: "zroot/satl/layers/bbbb2222", origin: "zroot/satl/layers/aaaa1111@final", mounted: true, used: 69632, state: "/var/db/satl"},
		{name: "zroot/usr"},
	}
	if !slices.Equal(got, want) {
		t.Errorf("got %+v\nwant %+v", got, want)
	}
	for _, bad := range []string{"\n", "a\tb\n", "a\t-\tno\t1K\t-\n", "a\t-\tno\t1\t-\t-\n"} {
		if got, err := parseDatasets(bad); err == nil {
			t.Errorf("%q is read as %+v", bad, got)
		}
	}
}

// TestChainIDs is the example of the OCI image specification's rule: the chain
// of one layer is its diff ID, that of more is the digest of what is below
// and the diff ID.
func TestChainIDs(t *testing.T) {
	a, b := digestOf([]byte("a")), digestOf([]byte("b"))
	chains := chainsOf([]tree{{diffID: a}, {diffID: b}})
	if want := []string{hexOf(a), hexOf(digestOf([]byte(a + " " + b)))}; !slices.Equal(chains, want) {
		t.Errorf("chains %q, want %q", chains, want)
	}
	if got := chainID([]tree{{diffID: a}, {diffID: b}}); got != chains[1] {
		t.Errorf("chain %q, want %q", got, chains[1])
	}
}

func TestCheckDataset(t *testing.T) {
	for name, ok := range map[string]bool{
		"zroot": true, "zroot/satl": true, "zroot/a.b_c:d-e/f": true, strings.Repeat("a", 100): true,
		"": false, "/zroot": false, "zroot/": false, "zroot//a": false, "zroot/satl@x": false, "-r": false, "zroot/a b": false,
		"off,": false, strings.Repeat("a", 101): false,
	} {
		if err := CheckDataset(name); (err == nil) != ok {
			t.Errorf("%q: %v", name, err)
		}
	}
}
