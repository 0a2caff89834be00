// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// restore reads the state and sweeps what it does not name.
func (s *Store) restore(useCopy bool) error {
	if err := clearMounts(s.path("tmp")); err != nil {
		return err
	}
	if err := emptyDir(s.path("tmp")); err != nil {
		return err
	}
	var err error
	if s.roots, err = newRootMaker(s, useCopy); err != nil {
		return err
	}
	s.index = newIndex()
	data, err := os.ReadFile(s.path("index.json"))
	if err == nil {
		s.index, err = decodeIndex(data)
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("reading index.json: %w", err)
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
			unix.Rmdir(s.containerDir(d.Name()))
			continue
		}
		var c container
		if err == nil {
			err = json.Unmarshal(data, &c)
		}
		if err != nil {
			return fmt.Errorf("reading which image container %s uses: %w", d.Name(), err)
		}
		c.mounted = s.roots.mounted(s.containerDir(d.Name()))
		s.mounts[d.Name()] = c
	}
	return nil
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
