// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"golang.org/x/sys/unix"

	"satld/platform/atomicfile"
	"satld/platform/command"
)

// Config is what Open needs.
type Config struct {
	StateDir string       // the daemon's; images live in its images/, roots in its containers/
	Logger   *slog.Logger // nil is the default logger
	// Copy gives every container a full copy of its image where an overlay
	// mount or a clone would do: for tests and for odd file systems.
	Copy bool
	// ZFSRoot is the dataset below which roots are clones, on FreeBSD. Empty is
	// the one that is mounted at StateDir, if one is; "off" is none.
	ZFSRoot string
	// Transport talks to registries; nil is one with bounded waits. Plain
	// HTTP is refused in front of it except to loopback.
	Transport http.RoundTripper

	// tools, for tests, are those of a FreeBSD host, whatever the system is.
	tools command.Runner
}

// Store implements Images. On disk, below StateDir/images:
//
//	lock            held while a Store is open
//	index.json      which images there are and their names: the one file that
//	                decides; replaced atomically. index.json.old is what it was
//	configs/<hex>   each image's config, as it came
//	layers/<hex>/   each layer, unpacked once; see layer
//	tmp/            work in progress; emptied by Open
//	reserve         a little space that Remove gives up on a full disk
//
// The index and what it names outlive a power cut. Layers and configs are put in place before the index names them, and go
// after it names them no more; Open deletes those that it does not name. So a
// crash at any moment leaves the state before or after.
type Store struct {
	dir        string // StateDir/images
	containers string // StateDir/containers
	log        *slog.Logger
	roots      rootMaker
	format     whiteoutFormat
	lock       *os.File
	transport  http.RoundTripper

	busy keyLock    // layers being unpacked, containers being mounted
	edit sync.Mutex // held by who changes the index; taken before mu

	mu      sync.Mutex
	index   index
	configs map[string]config    // by image ID
	layers  map[string]layer     // by diff ID
	holds   map[string]int       // layers that a load or pull at work relies on
	mounts  map[string]container // by container ID
	doomed  int                  // layers moved away so far, for names in tmp
}

// config is an image's config as it came, and parsed.
type config struct {
	raw    []byte
	parsed v1.ConfigFile
}

// layerIDs are the image's layers, lowest first.
func (c config) layerIDs() []string {
	ids := make([]string, len(c.parsed.RootFS.DiffIDs))
	for i, h := range c.parsed.RootFS.DiffIDs {
		ids[i] = h.String()
	}
	return ids
}

var _ Images = (*Store)(nil)

// Open opens the store below c.StateDir, made where it is missing, and
// sweeps what a crash left. Only one Store at a time has a state directory;
// another gets ErrConflict until Close.
func Open(c Config) (*Store, error) {
	if c.StateDir == "" {
		return nil, errInvalid("opening image store: no state directory given")
	}
	state, err := filepath.Abs(c.StateDir)
	if err != nil {
		return nil, fmt.Errorf("opening image store: %w", err)
	}
	if err := os.MkdirAll(state, 0o711); err != nil {
		return nil, fmt.Errorf("opening image store: %w", err)
	}
	if state, err = filepath.EvalSymlinks(state); err != nil { // mount tables name real paths
		return nil, fmt.Errorf("opening image store: %w", err)
	}
	s := &Store{
		dir:        filepath.Join(state, "images"),
		containers: filepath.Join(state, "containers"),
		log:        c.Logger,
		format:     platformFormat(),
		transport:  newTransport(c.Transport),
		configs:    map[string]config{},
		layers:     map[string]layer{},
		holds:      map[string]int{},
		mounts:     map[string]container{},
	}
	if s.log == nil {
		s.log = slog.Default()
	}
	for _, d := range []string{s.dir, s.path("configs"), s.path("layers"), s.path("tmp"), s.containers} {
		if err := os.MkdirAll(d, 0o711); err != nil {
			return nil, fmt.Errorf("opening image store: %w", err)
		}
	}
	if s.lock, err = lockFile(s.path("lock")); err != nil {
		return nil, err
	}
	if err := s.restore(c); err != nil {
		s.lock.Close()
		return nil, fmt.Errorf("opening image store %s: %w", s.dir, err)
	}
	return s, nil
}

// Close lets another Store open the state directory. Roots stay mounted.
func (s *Store) Close() error { return s.lock.Close() }

// lockFile takes the lock that keeps a second program out.
func lockFile(path string) (*os.File, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, fmt.Errorf("locking image store: %w", err)
	}
	if err := unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB); err != nil {
		f.Close()
		if errors.Is(err, unix.EWOULDBLOCK) {
			return nil, errConflict("image store %s is in use by another process", filepath.Dir(path))
		}
		return nil, fmt.Errorf("locking %s: %w", path, err)
	}
	return f, nil
}

// fileMode of the store's own files: nobody else's business.
const fileMode = 0o600

func (s *Store) path(elem ...string) string {
	return filepath.Join(append([]string{s.dir}, elem...)...)
}

func (s *Store) layerDir(diffID string) string { return s.path("layers", hexOf(diffID)) }

// update replaces the index by what f makes of it, on disk and then in
// memory. The caller holds edit.
func (s *Store) update(f func(index) (index, error)) error {
	next, err := f(s.index) // only holders of edit change it
	if err != nil {
		return err
	}
	data, err := next.encode()
	if err != nil {
		return err
	}
	if err := s.keepOldIndex(); err != nil {
		return err
	}
	if err := atomicfile.WriteDurably(s.path(indexName), data, fileMode); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.index = next
	return nil
}

// keepOldIndex gives the index a second name, which it keeps when it is
// replaced: its content is on the disk already.
func (s *Store) keepOldIndex() error {
	err := os.Remove(s.path(oldIndexName))
	if err == nil || errors.Is(err, os.ErrNotExist) {
		err = os.Link(s.path(indexName), s.path(oldIndexName))
	}
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("keeping the index as it was: %w", err)
	}
	return nil
}

// Get finds an image by name, name@digest, ID or a unique prefix of its ID.
func (s *Store) Get(ref string) (Image, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	id, _, err := s.index.find(ref)
	if err != nil {
		return Image{}, err
	}
	return s.imageLocked(id), nil
}

// List returns every image, the newest first.
func (s *Store) List() []Image {
	s.mu.Lock()
	defer s.mu.Unlock()
	images := make([]Image, 0, len(s.index.Images))
	for _, id := range slices.Sorted(maps.Keys(s.index.Images)) {
		images = append(images, s.imageLocked(id))
	}
	slices.SortStableFunc(images, func(a, b Image) int { return b.Created.Compare(a.Created) })
	return images
}

// imageLocked is the image called id, which is in the index.
func (s *Store) imageLocked(id string) Image {
	c := s.configs[id]
	tags, digests := s.index.names(id)
	img := Image{
		ID:          id,
		RepoTags:    familiars(tags),
		RepoDigests: familiars(digests),
		Created:     c.parsed.Created.Time,
		Config:      *c.parsed.DeepCopy(),
	}
	for _, l := range c.layerIDs() {
		img.Size += s.layers[l].Size
	}
	return img
}

// LayersSize is the bytes of all layers' regular files, and of what is kept of
// them in datasets.
func (s *Store) LayersSize() int64 {
	sum, err := s.roots.kept(context.Background())
	if err != nil {
		s.log.Warn("the space of layers is not known", "error", err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, l := range s.layers {
		sum += l.Size
	}
	return sum
}

// Tag gives the image ref the name target as well; an image that had it loses it.
func (s *Store) Tag(ref, target string) error {
	name, err := parseTag(target)
	if err != nil {
		return err
	}
	s.edit.Lock()
	defer s.edit.Unlock()
	return s.update(func(x index) (index, error) {
		id, _, err := x.find(ref)
		if err != nil {
			return x, err
		}
		return x.add(id, []string{name.String()}, nil), nil
	})
}

// Remove drops the name ref, and the image with its last name; see
// index.remove for the rules. untagged are names; deleted are the IDs of the
// image and of the layers that nothing else uses. It works on a full disk.
func (s *Store) Remove(_ context.Context, ref string, force bool) (untagged, deleted []string, err error) {
	s.edit.Lock()
	defer s.edit.Unlock()
	remove := func(x index) (next index, err error) {
		id, _, err := x.find(ref)
		if err != nil {
			return x, err
		}
		next, untagged, deleted, err = x.remove(ref, force, s.users(id))
		return next, err
	}
	err = s.update(remove)
	if isFull(err) {
		s.dropReserve()
		defer s.keepReserve()
		err = s.update(remove)
	}
	if err != nil {
		return nil, nil, err
	}
	for _, id := range deleted {
		s.mu.Lock()
		delete(s.configs, id)
		s.mu.Unlock()
		if err := os.Remove(s.path("configs", hexOf(id))); err != nil {
			s.log.Warn("deleting an image's config failed; the next start does it", "image", id, "error", err)
		}
	}
	return untagged, append(deleted, s.collect()...), nil
}

// collect deletes the layers that no image, no container and nobody at work
// uses, and returns their diff IDs. What cannot be deleted is logged, and
// swept by the next Open, or the next collect if it is a dataset.
func (s *Store) collect() (gone []string) {
	if err := s.roots.sweep(context.Background(), s.needed); err != nil {
		s.log.Warn("deleting unused datasets failed; it is tried again", "error", err)
	}
	doomed, gone := s.unlinkUnused()
	for _, d := range doomed {
		if err := RemoveTree(d); err != nil {
			s.log.Warn("deleting an unused layer failed; the next start does it", "error", err)
		}
	}
	return gone
}

// needed is what images and containers are made of.
func (s *Store) needed() needed {
	s.mu.Lock()
	defer s.mu.Unlock()
	n := needed{chains: map[string]bool{}, containers: map[string]bool{}}
	add := func(layers []string) {
		for _, chain := range chainsOf(s.diffs(layers)) {
			n.chains[chain] = true
		}
	}
	for id := range s.index.Images {
		add(s.configs[id].layerIDs())
	}
	for id, c := range s.mounts {
		n.containers[id] = true
		add(c.Layers)
	}
	return n
}

// unlinkUnused moves unused layers away, each in one step so that nobody finds
// half of one, and returns where they are now.
func (s *Store) unlinkUnused() (doomed, gone []string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	used := maps.Clone(s.holds)
	for id := range s.index.Images {
		for _, l := range s.configs[id].layerIDs() {
			used[l]++
		}
	}
	for _, c := range s.mounts {
		for _, l := range c.Layers {
			used[l]++
		}
	}
	for _, id := range slices.Sorted(maps.Keys(s.layers)) {
		if used[id] > 0 {
			continue
		}
		s.doomed++
		away := s.path("tmp", "gone-"+strconv.Itoa(s.doomed))
		if err := os.Rename(s.layerDir(id), away); err != nil {
			s.log.Warn("deleting an unused layer failed; the next start does it", "error", err)
			continue
		}
		delete(s.layers, id)
		doomed, gone = append(doomed, away), append(gone, id)
	}
	return doomed, gone
}
