// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/containerd/errdefs"
)

func testID(c byte) string { return "sha256:" + strings.Repeat(string(c), 64) }

// testIndex has image a as web:1, web@..., and registry.example.com/web:1; b as
// one:1; c without a name; d, which begins like c, by digest only.
func testIndex() index {
	d := "sha256:c" + strings.Repeat("d", 63)
	return newIndex().
		add(testID('a'), []string{"docker.io/library/web:1", "registry.example.com/web:1"}, []string{"docker.io/library/web@" + testID('1')}).
		add(testID('b'), []string{"docker.io/library/one:1"}, nil).
		add(testID('c'), nil, nil).
		add(d, nil, []string{"docker.io/library/web@" + testID('2')})
}

func TestFind(t *testing.T) {
	x := testIndex()
	for _, c := range []struct {
		ref  string
		want string // the ID's beginning; or the error
		is   func(error) bool
	}{
		{"web:1", "aaa", nil},
		{"docker.io/web:1", "aaa", nil},
		{"index.docker.io/library/web:1", "aaa", nil},
		{"library/web:1", "aaa", nil},
		{"registry.example.com/web:1", "aaa", nil},
		{"web@" + testID('1'), "aaa", nil},
		{"web:1@" + testID('1'), "aaa", nil},
		{"web:other@" + testID('1'), "aaa", nil}, // a digest wins over a tag
		{"web@" + testID('2'), "cdd", nil},
		{"web@" + testID('a'), "aaa", nil}, // by ID, and its name
		{"one@" + testID('a'), "No such image: one@" + testID('a'), errdefs.IsNotFound},
		{testID('b'), "bbb", nil},
		{strings.Repeat("b", 64), "bbb", nil},
		{"b", "bbb", nil},
		{"sha256:b", "bbb", nil},
		{"cd", "cdd", nil},
		{"c", `image ID prefix "c" is ambiguous: 2 images begin with it`, errdefs.IsInvalidArgument},
		{"web", "No such image: web:latest", errdefs.IsNotFound},
		{"f", "No such image: f:latest", errdefs.IsNotFound},
		{testID('f'), "No such image: " + testID('f'), errdefs.IsNotFound},
		{"Web", "invalid reference", errdefs.IsInvalidArgument},
		{"", "invalid reference", errdefs.IsInvalidArgument},
		{"a b", "invalid reference", errdefs.IsInvalidArgument},
		{"../x", "invalid reference", errdefs.IsInvalidArgument},
	} {
		id, _, err := x.find(c.ref)
		switch {
		case c.is == nil && (err != nil || !strings.HasPrefix(hexOf(id), c.want)):
			t.Errorf("find(%q): %s %v, want %s", c.ref, id, err, c.want)
		case c.is != nil && (err == nil || !c.is(err) || !strings.Contains(err.Error(), c.want)):
			t.Errorf("find(%q): %s %v, want %s", c.ref, id, err, c.want)
		}
	}
}

func TestRemoveRules(t *testing.T) {
	a, b, c := testID('a'), testID('b'), testID('c')
	short := func(id string) string { return id[7:19] }
	running, stopped := []user{{"0123456789abcdef", true}}, []user{{"0123456789abcdef", false}}
	for _, r := range []struct {
		ref      string
		force    bool
		users    []user
		untagged []string
		deleted  []string
		conflict string
	}{
		{ref: "one:1", untagged: []string{"one:1"}, deleted: []string{b}},
		{ref: b, untagged: []string{"one:1"}, deleted: []string{b}},
		{ref: "bbbb", untagged: []string{"one:1"}, deleted: []string{b}},
		{ref: c, deleted: []string{c}, untagged: []string{}},
		// The last tag of a repository takes its digests along; the other repository keeps the image.
		{ref: "web:1", untagged: []string{"web:1", "web@" + testID('1')}},
		{ref: "registry.example.com/web:1", untagged: []string{"registry.example.com/web:1"}},
		{ref: "web@" + testID('1'), untagged: []string{"web@" + testID('1')}},
		{ref: a, conflict: "conflict: unable to delete " + short(a) + " (must be forced) - image is referenced in multiple repositories"},
		{ref: a, force: true, untagged: []string{"web:1", "registry.example.com/web:1", "web@" + testID('1')}, deleted: []string{a}},
		// In use.
		{ref: "one:1", users: stopped, conflict: `conflict: unable to remove repository reference "one:1" (must force) - container 0123456789ab is using its referenced image ` + short(b)},
		{ref: "one:1", users: running, conflict: `conflict: unable to remove repository reference "one:1" (must force) - container 0123456789ab is using its referenced image ` + short(b)},
		{ref: b, users: stopped, conflict: "conflict: unable to delete " + short(b) + " (must be forced) - image is being used by stopped container 0123456789ab"},
		{ref: b, users: running, conflict: "conflict: unable to delete " + short(b) + " (cannot be forced) - image is being used by running container 0123456789ab"},
		{ref: b, users: running, force: true, conflict: "conflict: unable to delete " + short(b) + " (cannot be forced) - image is being used by running container 0123456789ab"},
		{ref: b, users: stopped, force: true, untagged: []string{"one:1"}, deleted: []string{b}},
		{ref: "one:1", users: running, force: true, untagged: []string{"one:1"}},
		{ref: "one:1", users: stopped, force: true, untagged: []string{"one:1"}, deleted: []string{b}},
		{ref: "web:1", users: running, untagged: []string{"web:1", "web@" + testID('1')}}, // it has another name
	} {
		x := testIndex()
		next, untagged, deleted, err := x.remove(r.ref, r.force, r.users)
		if r.conflict != "" {
			if !errdefs.IsConflict(err) || err.Error() != r.conflict {
				t.Errorf("remove(%s, %v, %v): %v\nwant %s", r.ref, r.force, r.users, err, r.conflict)
			}
			if !reflect.DeepEqual(next, testIndex()) {
				t.Errorf("remove(%s): something changed despite a conflict", r.ref)
			}
			continue
		}
		if err != nil || !slices.Equal(untagged, r.untagged) || !slices.Equal(deleted, r.deleted) {
			t.Errorf("remove(%s, %v, %v): %v %v %v\nwant %v %v", r.ref, r.force, r.users, untagged, deleted, err, r.untagged, r.deleted)
		}
		for _, id := range deleted {
			if next.Images[id] {
				t.Errorf("remove(%s): %s is still there", r.ref, id)
			}
		}
		if !reflect.DeepEqual(x, testIndex()) {
			t.Errorf("remove(%s): the old index was changed", r.ref)
		}
	}
}

func TestIndexFile(t *testing.T) {
	x := testIndex()
	data, err := x.encode()
	if err != nil {
		t.Fatal(err)
	}
	if got, err := decodeIndex(data); err != nil || !reflect.DeepEqual(got, x) {
		t.Errorf("decoded %v %v", got, err)
	}
	for _, bad := range []string{"", "{", `{"version":2}`, `{"version":1,"images":["../../etc"]}`} {
		if _, err := decodeIndex([]byte(bad)); err == nil {
			t.Errorf("%q is accepted", bad)
		}
	}
	if got, err := decodeIndex([]byte(`{"version":1,"tags":{"docker.io/library/x:1":"` + testID('a') + `"}}`)); err != nil || len(got.Tags) != 0 {
		t.Errorf("a name of no image: %v %v", got, err)
	}
}

func TestParseTag(t *testing.T) {
	for in, want := range map[string]string{
		"web":                             "docker.io/library/web:latest",
		"web:1":                           "docker.io/library/web:1",
		"me/web":                          "docker.io/me/web:latest",
		"localhost/web":                   "localhost/web:latest",
		"localhost:5000/a/b/c:x":          "localhost:5000/a/b/c:x",
		"[::1]:5000/web":                  "[::1]:5000/web:latest",
		"web@" + testID('a'):              "",
		strings.Repeat("a", 64):           "",
		"sha256:abc":                      "",
		"sha256:" + "a":                   "",
		"UPPER":                           "",
		"web:":                            "",
		":1":                              "",
		"a//b":                            "",
		"web:" + strings.Repeat("x", 129): "",
	} {
		got, err := parseTag(in)
		if want == "" {
			if !errdefs.IsInvalidArgument(err) {
				t.Errorf("parseTag(%q): %v %v, want it refused", in, got, err)
			}
		} else if err != nil || got.String() != want {
			t.Errorf("parseTag(%q): %v %v, want %s", in, got, err, want)
		}
	}
}

// FuzzFind: any text is found or refused with a class, and a name that can be
// given can be found.
func FuzzFind(f *testing.F) {
	for _, s := range []string{"web:1", "a@" + testID('1'), "sha256:ab", "[::1]:5000/x", "..", "a/b/c:d@sha256:e"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		if _, _, err := testIndex().find(s); err != nil && !errdefs.IsNotFound(err) && !errdefs.IsInvalidArgument(err) {
			t.Errorf("find(%q): %v has no class", s, err)
		}
		name, err := parseTag(s)
		if err != nil {
			return
		}
		x := newIndex().add(testID('a'), []string{name.String()}, nil)
		if id, _, err := x.find(s); err != nil || id != testID('a') {
			t.Errorf("%q can be given and not found: %v", s, err)
		}
		if id, _, err := x.find(familiar(name.String())); err != nil || id != testID('a') {
			t.Errorf("%q is shown as %q, which is not found: %v", s, familiar(name.String()), err)
		}
		if _, err := remoteRef(name); err != nil {
			t.Errorf("%q cannot be asked for: %v", s, err)
		}
	})
}
