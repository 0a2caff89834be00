// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"runtime"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
)

// Import makes an image of one root file system archive. See Images.
func (s *Store) Import(ctx context.Context, archive io.Reader, ref, message string, changes []string) (Image, error) {
	var tags []string
	if ref != "" {
		name, err := parseTag(ref)
		if err != nil {
			return Image{}, err
		}
		tags = []string{name.String()}
	}
	var settings v1.Config
	if err := applyChanges(&settings, changes); err != nil {
		return Image{}, err
	}
	t := s.begin()
	defer t.end()
	l, err := t.unpack(ctx, "", archive)
	if err != nil {
		return Image{}, fmt.Errorf("importing image: %w", truncatedIsInvalid(err))
	}
	diffID, err := v1.NewHash(l.DiffID)
	if err != nil {
		return Image{}, err
	}
	now := v1.Time{Time: time.Now().UTC()}
	raw, err := json.Marshal(v1.ConfigFile{
		Architecture: runtime.GOARCH,
		OS:           runtime.GOOS,
		Created:      now,
		Config:       settings,
		RootFS:       v1.RootFS{Type: "layers", DiffIDs: []v1.Hash{diffID}},
		History:      []v1.History{{Created: now, Comment: message}},
	})
	if err != nil {
		return Image{}, err
	}
	c, err := parseConfig(raw, "")
	if err != nil {
		return Image{}, err
	}
	id := digestOf(raw)
	if err := t.commit([]newImage{{id: id, config: c, tags: tags}}); err != nil {
		return Image{}, fmt.Errorf("importing image: %w", err)
	}
	return s.Get(id)
}

// truncatedIsInvalid blames an archive that ends too early on who sent it.
func truncatedIsInvalid(err error) error {
	if errors.Is(err, io.ErrUnexpectedEOF) {
		return asInvalid(err)
	}
	return err
}
