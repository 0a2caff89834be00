// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/distribution/reference"
)

// index says which images exist and what they are called. It is a value: what
// changes it returns another one, and the store writes it as one file, which
// is the moment at which an image is there or gone. Names are in full form
// ("docker.io/library/nginx:1").
type index struct {
	Images  map[string]bool   // by ID, "sha256:<hex>" of the config
	Tags    map[string]string // name:tag to ID
	Digests map[string]string // name@digest to ID
}

// indexFormat is the index as a file. Version rises when an older program
// could no longer read it.
type indexFormat struct {
	Version int               `json:"version"`
	Images  []string          `json:"images"`
	Tags    map[string]string `json:"tags"`
	Digests map[string]string `json:"digests"`
}

const indexVersion = 1

func newIndex() index {
	return index{Images: map[string]bool{}, Tags: map[string]string{}, Digests: map[string]string{}}
}

func (x index) clone() index {
	return index{Images: maps.Clone(x.Images), Tags: maps.Clone(x.Tags), Digests: maps.Clone(x.Digests)}
}

func (x index) encode() ([]byte, error) {
	return json.MarshalIndent(indexFormat{
		Version: indexVersion,
		Images:  slices.Sorted(maps.Keys(x.Images)),
		Tags:    x.Tags,
		Digests: x.Digests,
	}, "", "\t")
}

// decodeIndex reads an index. One that is of no index at all is a damageError;
// one of a later program is not.
func decodeIndex(data []byte) (index, error) {
	var f indexFormat
	if err := json.Unmarshal(data, &f); err != nil {
		return index{}, &damageError{err}
	}
	if f.Version == 0 {
		return index{}, &damageError{errors.New("it has no version")}
	}
	if f.Version != indexVersion {
		return index{}, fmt.Errorf("version %d is not known to this program (it knows %d)", f.Version, indexVersion)
	}
	x := newIndex()
	for _, id := range f.Images {
		if !isID(id) { // it is part of a file's name
			return index{}, &damageError{fmt.Errorf("%q is no image ID", id)}
		}
		x.Images[id] = true
	}
	for name, id := range f.Tags {
		if x.Images[id] {
			x.Tags[name] = id
		}
	}
	for name, id := range f.Digests {
		if x.Images[id] {
			x.Digests[name] = id
		}
	}
	return x, nil
}

// add has the image, under each name given. A tag moves from the image that
// had it; that one stays, without it.
func (x index) add(id string, tags, digests []string) index {
	next := x.clone()
	next.Images[id] = true
	for _, t := range tags {
		next.Tags[t] = id
	}
	for _, d := range digests {
		next.Digests[d] = id
	}
	return next
}

// drop has the image no more, nor any name of it.
func (x index) drop(id string) index {
	next := x.clone()
	delete(next.Images, id)
	isIt := func(_, of string) bool { return of == id }
	maps.DeleteFunc(next.Tags, isIt)
	maps.DeleteFunc(next.Digests, isIt)
	return next
}

// unname drops one name.
func (x index) unname(name string) index {
	next := x.clone()
	delete(next.Tags, name)
	delete(next.Digests, name)
	return next
}

// names are the tags and the digests of an image, each sorted.
func (x index) names(id string) (tags, digests []string) {
	pick := func(m map[string]string) (out []string) {
		for name, of := range m {
			if of == id {
				out = append(out, name)
			}
		}
		slices.Sort(out)
		return out
	}
	return pick(x.Tags), pick(x.Digests)
}

// find looks ref up as Docker does: a whole ID, then a name, then a prefix of
// an ID. name is the stored name by which it was found, or empty.
func (x index) find(ref string) (id, name string, err error) {
	if isID(ref) {
		id := "sha256:" + hexOf(ref)
		if x.Images[id] {
			return id, "", nil
		}
		return "", "", errNotFound("No such image: %s", ref)
	}
	shown := ref
	named, nameErr := parseName(ref)
	if nameErr == nil {
		shown = reference.FamiliarString(named)
		if digested, ok := named.(reference.Canonical); ok {
			if id, ok := x.Digests[named.String()]; ok {
				return id, named.String(), nil
			}
			if id := digested.Digest().String(); x.Images[id] && x.hasRepository(id, named.Name()) {
				return id, "", nil
			}
		} else if id, ok := x.Tags[named.String()]; ok {
			return id, named.String(), nil
		}
	}
	if prefixID.MatchString(ref) {
		var found []string
		for id := range x.Images {
			if strings.HasPrefix(hexOf(id), hexOf(ref)) {
				found = append(found, id)
			}
		}
		if len(found) == 1 {
			return found[0], "", nil
		}
		if len(found) > 1 {
			return "", "", errInvalid("image ID prefix %q is ambiguous: %d images begin with it", ref, len(found))
		}
	}
	if nameErr != nil {
		return "", "", nameErr
	}
	return "", "", errNotFound("No such image: %s", shown)
}

func (x index) hasRepository(id, repo string) bool {
	tags, digests := x.names(id)
	return slices.ContainsFunc(append(tags, digests...), func(n string) bool { return repository(n) == repo })
}
