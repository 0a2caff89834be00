// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"satld/jail/shim"
	"satld/platform/atomicfile"
)

// jailRecord is what is known of a jail from before it is made until nothing
// of it is left, which can be long after its container was forgotten.
type jailRecord struct {
	Rootfs  string
	Limits  bool      `json:",omitempty"` // rctl(8) has rules of it
	Deleted time.Time `json:",omitzero"`  // when its removal began
}

// jailRecords are the records, a file for each by its name.
type jailRecords struct {
	dir string

	mu sync.Mutex
	// deleted are those of which that could not be written down: a full disk
	// must not keep anything from being removed.
	deleted map[string]time.Time
}

func (d *jailRecords) file(name string) string { return filepath.Join(d.dir, name+".json") }

func (d *jailRecords) read(name string) (r jailRecord, ok bool, err error) {
	b, err := os.ReadFile(d.file(name))
	if errors.Is(err, fs.ErrNotExist) {
		return r, false, nil
	}
	if err != nil {
		return r, false, fmt.Errorf("read the record of jail %s: %w", name, err)
	}
	if err := json.Unmarshal(b, &r); err != nil {
		return jailRecord{}, false, fmt.Errorf("read the record of jail %s: %w: %w", name, shim.ErrDamaged, err)
	}
	if r.Deleted.IsZero() {
		d.mu.Lock()
		defer d.mu.Unlock()
		r.Deleted = d.deleted[name]
	}
	return r, true, nil
}

// delete notes that the jail's removal begins.
func (d *jailRecords) delete(name string, r jailRecord, log *slog.Logger) {
	r.Deleted = time.Now()
	err := d.write(name, r)
	if err == nil {
		return
	}
	log.Warn("a removal is not written down; the next daemon finds it out", "jail", name, "error", err)
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.deleted == nil {
		d.deleted = make(map[string]time.Time)
	}
	d.deleted[name] = r.Deleted
}

// write replaces a record. It does not wait for the disk, at each start and end
// of a jail: a power cut ends the jail and its mounts with it.
func (d *jailRecords) write(name string, r jailRecord) error {
	b, err := json.Marshal(r)
	if err == nil {
		err = atomicfile.Write(d.file(name), b, 0o600)
	}
	if err != nil {
		return fmt.Errorf("write the record of jail %s: %w", name, err)
	}
	return nil
}

func (d *jailRecords) remove(name string) error {
	if err := os.Remove(d.file(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.deleted, name)
	return nil
}

// names are those of the jails that have a record.
func (d *jailRecords) names() (names []string, err error) {
	entries, err := os.ReadDir(d.dir)
	if err != nil {
		return nil, fmt.Errorf("list the records of jails: %w", err)
	}
	for _, e := range entries {
		if name, ok := strings.CutSuffix(e.Name(), ".json"); ok && checkID(name) == nil {
			names = append(names, name)
		}
	}
	return names, nil
}

// all reads the records there are. One that cannot be read is in the error,
// and the others are returned all the same.
func (d *jailRecords) all() (map[string]jailRecord, error) {
	names, err := d.names()
	if err != nil {
		return nil, err
	}
	found := make(map[string]jailRecord)
	var errs []error
	for _, name := range names {
		r, ok, err := d.read(name)
		if ok {
			found[name] = r
		}
		errs = append(errs, err)
	}
	return found, errors.Join(errs...)
}
