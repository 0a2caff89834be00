// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"

	"satld/platform/atomicfile"
)

// restore reads the state and sweeps what it does not name.
func (s *Store) restore(cfg Config) error {
	if err := clearMounts(s.path("tmp")); err != nil {
		return err
	}
	if err := emptyDir(s.path("tmp")); err != nil {
		return err
	}
	var err error
	if s.roots, err = newRootMaker(s, cfg); err != nil {
		return err
	}
	if err := s.restoreIndex(); err != nil {
		return err
	}
	if err := s.restoreLayers(); err != nil {
		return err
	}
	if err := s.restoreContainers(); err != nil {
		return err
	}
	for id := range s.index.Images {
		if err := s.restoreImage(id); err != nil {
			s.log.Error("image is damaged and left out", "image", id, "error", err)
			s.index = s.index.drop(id)
		}
	}
	if err := s.sweepConfigs(); err != nil {
		return err
	}
	s.collect()
	s.keepReserve()
	return nil
}

// indexName is the file that decides which images there are; the one before
// its last change stays beside it.
const (
	indexName    = "index.json"
	oldIndexName = "index.json.old"
)

// restoreIndex reads the index. One that is damaged is set aside, and made
// again of the one before it and of the images whose configs are there.
func (s *Store) restoreIndex() error {
	var err error
	s.index, err = readIndex(s.path(indexName))
	if errors.Is(err, os.ErrNotExist) {
		s.index = newIndex()
		return nil
	}
	damage := new(damageError)
	if !errors.As(err, &damage) {
		return err
	}
	aside := s.path(indexName + ".damaged")
	if err := os.Rename(s.path(indexName), aside); err != nil {
		return fmt.Errorf("setting the damaged %s aside: %w", indexName, err)
	}
	before, err := readIndex(s.path(oldIndexName))
	if err != nil {
		before = newIndex() // then there are no names
	}
	configs, err := os.ReadDir(s.path("configs"))
	if err != nil {
		return err
	}
	for _, c := range configs {
		if id := "sha256:" + c.Name(); isID(id) {
			before = before.add(id, nil, nil)
		}
	}
	s.log.Error("the index of images is damaged: it is made again, without what was last tagged or untagged",
		"images", len(before.Images), "names", len(before.Tags), "set_aside", aside, "error", damage)
	return s.update(func(index) (index, error) { return before, nil })
}

// damageError is a file whose content is not what was written.
type damageError struct{ err error }

func (e *damageError) Error() string { return e.err.Error() }
func (e *damageError) Unwrap() error { return e.err }

func readIndex(path string) (index, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return index{}, fmt.Errorf("reading %s: %w", filepath.Base(path), err)
	}
	return decodeIndex(data)
}

// emptyDir deletes what is in dir.
func emptyDir(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		if err := RemoveTree(filepath.Join(dir, e.Name())); err != nil {
			return err
		}
	}
	return nil
}

func (s *Store) restoreLayers() error {
	dirs, err := os.ReadDir(s.path("layers"))
	if err != nil {
		return err
	}
	for _, d := range dirs {
		l, err := readLayer(s.path("layers", d.Name()))
		if err == nil && (hexOf(l.DiffID) != d.Name() || l.Format != s.format) {
			err = fmt.Errorf("it is layer %s in format %q", l.DiffID, l.Format)
		}
		if err != nil {
			s.log.Error("layer is damaged and deleted", "layer", d.Name(), "error", err)
			if err := RemoveTree(s.path("layers", d.Name())); err != nil {
				return err
			}
			continue
		}
		s.layers[l.DiffID] = l
	}
	return nil
}

func readLayer(dir string) (l layer, err error) {
	data, err := os.ReadFile(filepath.Join(dir, layerMeta))
	if err != nil {
		return layer{}, err
	}
	return l, json.Unmarshal(data, &l)
}

// restoreContainers reads the records of the roots there are.
func (s *Store) restoreContainers() error {
	dirs, err := os.ReadDir(s.containers)
	if err != nil {
		return err
	}
	for _, d := range dirs {
		data, err := os.ReadFile(filepath.Join(s.containers, d.Name(), containerMeta))
		if errors.Is(err, os.ErrNotExist) || errors.Is(err, unix.ENOTDIR) {
			// Somebody else's; or ours, empty, of a crash beside the record's
			// first or last moment. Only an empty directory can go this way.
			unix.Unlink(atomicfile.Unfinished(filepath.Join(s.containerDir(d.Name()), containerMeta)))
			unix.Rmdir(s.containerDir(d.Name()))
			continue
		}
		if err != nil {
			return fmt.Errorf("reading which image container %s uses: %w", d.Name(), err)
		}
		c, err := parseContainer(data)
		switch {
		case err != nil:
			s.log.Error("which image a container uses is not known, its record is damaged: its next start writes it again, and keeps the root",
				"container", d.Name(), "error", err)
			c = container{damaged: true}
		case c.Kind != s.roots.kind():
			s.log.Warn("a container has a root of another kind than this host makes now: it can be removed, and not started",
				"container", d.Name(), "kind", c.Kind, "made_now", s.roots.kind())
		}
		c.mounted = s.roots.mounted(s.containerDir(d.Name()))
		s.mounts[d.Name()] = c
	}
	return nil
}

// parseContainer reads a container's record.
func parseContainer(data []byte) (container, error) {
	var c container
	if err := json.Unmarshal(data, &c); err != nil {
		return container{}, err
	}
	for _, id := range append([]string{c.Image}, c.Layers...) {
		if !isID(id) { // it is part of a file's name
			return container{}, fmt.Errorf("%q is no digest", id)
		}
	}
	return c, nil
}

func (s *Store) restoreImage(id string) error {
	raw, err := os.ReadFile(s.path("configs", hexOf(id)))
	if err != nil {
		return err
	}
	c, err := parseConfig(raw, id)
	if err != nil {
		return err
	}
	for _, l := range c.layerIDs() {
		if _, ok := s.layers[l]; !ok {
			return fmt.Errorf("layer %s is missing", l)
		}
	}
	s.configs[id] = c
	return nil
}

// sweepConfigs deletes the configs of images that are not.
func (s *Store) sweepConfigs() error {
	files, err := os.ReadDir(s.path("configs"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if s.index.Images["sha256:"+f.Name()] {
			continue
		}
		if err := RemoveTree(s.path("configs", f.Name())); err != nil {
			return err
		}
	}
	return nil
}
