// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"

	"satld/platform/command"
)

// Below its root dataset satld keeps these two, and nothing else:
//
//	layers/<hex of the chain ID>   a stack of layers, with the snapshot final
//	containers/<container ID>      a container's root, a clone of such a snapshot
const (
	layersSet     = "layers"
	containersSet = "containers"
	finalSnapshot = "final"
)

// stateProperty is a user property of the two (zfsprops(7), "User
// Properties"), which all below inherit: the state directory they belong to. It
// tells what is ours from what is somebody's, another daemon's included.
const stateProperty = "satl:state"

// datasetName bounds what may be a root, so that the longest container ID fits
// below it: a dataset's name holds 255 characters.
var datasetName = regexp.MustCompile(`^[a-zA-Z][a-zA-Z0-9_.:-]*(/[a-zA-Z0-9][a-zA-Z0-9_.:-]*)*$`)

const maxRootName = 100

// CheckDataset tells why name cannot be the root dataset.
func CheckDataset(name string) error {
	if len(name) > maxRootName || !datasetName.MatchString(name) {
		return fmt.Errorf("%q is no name of a dataset (such as zroot/satl, at most %d characters)", name, maxRootName)
	}
	return nil
}

// datasets runs zfs(8) on what lies below one dataset, and on nothing else:
// every name is checked before it is changed or destroyed.
type datasets struct {
	root  string // zroot/satl
	state string // the state directory
	run   command.Runner
}

// dataset is a file system or a snapshot as `zfs list` shows it.
type dataset struct {
	name    string
	origin  string // snapshot that it is a clone of; empty
	mounted bool
	used    int64 // bytes that would be freed with it
	state   string
}

func (d dataset) isSnapshot() bool { return strings.Contains(d.name, "@") }

// listColumns are what every list asks for, in the order of dataset's fields.
var listColumns = "name,origin,mounted,used," + stateProperty

// parseDatasets reads the output of `zfs list -H -p` with listColumns.
func parseDatasets(text string) ([]dataset, error) {
	var all []dataset
	for line := range strings.Lines(text) {
		fields := strings.Split(strings.TrimRight(line, "\n"), "\t")
		if len(fields) != 5 {
			return nil, fmt.Errorf("zfs list printed %d columns, not 5: %q", len(fields), line)
		}
		used, err := strconv.ParseInt(fields[3], 10, 64)
		if err != nil {
			return nil, fmt.Errorf("zfs list printed a size that is no number: %q", line)
		}
		all = append(all, dataset{
			name: fields[0], origin: orEmpty(fields[1]), mounted: fields[2] == "yes", used: used, state: orEmpty(fields[4]),
		})
	}
	return all, nil
}

// orEmpty undoes the dash that stands for no value.
func orEmpty(value string) string {
	if value == "-" {
		return ""
	}
	return value
}

// noDataset tells whether zfs(8) said that there is no such dataset.
func noDataset(err error) bool { return command.Says(err, "dataset does not exist") }

// busy makes a BusyError of a refusal because what is in use: by a process, a
// dying jail, a hold, or a clone that somebody made of a snapshot of it.
func busy(what string, err error) error {
	for _, text := range []string{"is busy", "Device busy", "has dependent clones", "has children"} {
		if command.Says(err, text) {
			return &BusyError{What: what, Err: err}
		}
	}
	return err
}

func (d datasets) layer(chain string) string  { return d.root + "/" + layersSet + "/" + chain }
func (d datasets) container(id string) string { return d.root + "/" + containersSet + "/" + id }
func (d datasets) zfs(ctx context.Context, args ...string) error {
	_, err := call(ctx, d.run, append([]string{"zfs"}, args...)...)
	return err
}

// below lists name, and with it everything below it and all their snapshots.
// Nothing is there: an empty list.
func (d datasets) below(ctx context.Context, name string) ([]dataset, error) {
	return d.list(ctx, "zfs", "list", "-H", "-p", "-t", "filesystem,snapshot", "-o", listColumns, "-r", name)
}

// one looks a file system up.
func (d datasets) one(ctx context.Context, name string) (dataset, bool, error) {
	all, err := d.list(ctx, "zfs", "list", "-H", "-p", "-t", "filesystem", "-o", listColumns, name)
	if err != nil || len(all) == 0 {
		return dataset{}, false, err
	}
	return all[0], true, nil
}

func (d datasets) list(ctx context.Context, argv ...string) ([]dataset, error) {
	out, err := call(ctx, d.run, argv...)
	if noDataset(err) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return parseDatasets(out)
}

// prepare has the two datasets below the root, which has to be there.
func (d datasets) prepare(ctx context.Context) error {
	if err := CheckDataset(d.root); err != nil {
		return err
	}
	if _, ok, err := d.one(ctx, d.root); err != nil {
		return err
	} else if !ok {
		return errNotFound("dataset %s does not exist: create it (zfs create -o mountpoint=none %s), or name another with zfs_root", d.root, d.root)
	}
	for _, part := range []string{layersSet, containersSet} {
		name := d.root + "/" + part
		found, ok, err := d.one(ctx, name)
		if err != nil {
			return err
		}
		if !ok {
			// Images hold programs to run, whatever the datasets above say.
			if err := d.zfs(ctx, "create", "-o", "canmount=off", "-o", "mountpoint=none", "-o", "exec=on", "-o", "setuid=on",
				"-o", stateProperty+"="+d.state, name); err != nil {
				return err
			}
			continue
		}
		if found.state != d.state {
			return errForeign(found, d.state)
		}
	}
	return nil
}

// errForeign is a dataset of somebody else where ours would be.
func errForeign(found dataset, state string) error {
	whose := "is not of satld (it has no property " + stateProperty + ")"
	if found.state != "" {
		whose = "is of the state directory " + found.state + ", not of " + state
	}
	return errConflict(`dataset %s %s: name another dataset with zfs_root, or "off" for plain copies`, found.name, whose)
}

// check refuses to touch name unless it is a layer or a container directly
// below the root.
func (d datasets) check(name string) error {
	rest, ok := strings.CutPrefix(name, d.root+"/")
	part, last, _ := strings.Cut(rest, "/")
	if !ok || part != layersSet && part != containersSet || !containerID.MatchString(last) {
		return errInvalid("refusing to change dataset %q: it is none of the layers and containers below %s", name, d.root)
	}
	return nil
}

// create makes a dataset that is mounted at point when asked, a clone of
// origin unless that is empty.
func (d datasets) create(ctx context.Context, name, origin, point string) error {
	if err := d.check(name); err != nil {
		return err
	}
	options := []string{"-o", "canmount=noauto", "-o", "mountpoint=" + point}
	if origin == "" {
		return d.zfs(ctx, append(append([]string{"create"}, options...), name)...)
	}
	return d.zfs(ctx, append(append([]string{"clone"}, options...), origin, name)...)
}

// unmount takes a dataset off, if it is there and mounted.
func (d datasets) unmount(ctx context.Context, name string) error {
	found, ok, err := d.one(ctx, name)
	if err != nil || !ok || !found.mounted {
		return err
	}
	if err := d.zfs(ctx, "unmount", name); err != nil {
		return busy(name, err)
	}
	return nil
}

// destroy deletes one of our datasets with all its snapshots, if it is there. It
// refuses what is not marked as ours and what has datasets of others below it.
// The snapshots of a layer are destroyed deferred: what somebody cloned or
// holds stays until he lets go, and so does the layer (BusyError).
func (d datasets) destroy(ctx context.Context, name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	all, err := d.below(ctx, name)
	if err != nil {
		return err
	}
	var snapshots []string
	for _, found := range all {
		snapshot, ok := strings.CutPrefix(found.name, name+"@")
		switch {
		case !found.isSnapshot() && found.state != d.state:
			return errForeign(found, d.state)
		case ok:
			snapshots = append(snapshots, snapshot)
		case found.name != name:
			return errdefs.ErrFailedPrecondition.WithMessage(fmt.Sprintf(
				"refusing to destroy dataset %s: %s below it is not of satld", name, found.name))
		}
	}
	if len(all) == 0 {
		return nil
	}
	args := []string{"destroy", name}
	if len(snapshots) > 0 && d.isLayer(name) {
		if err := d.zfs(ctx, "destroy", "-d", name+"@"+strings.Join(snapshots, ",")); err != nil {
			return busy(name, err)
		}
	} else if len(snapshots) > 0 { // somebody's, of a backup: they go with what they are of
		args = slices.Insert(args, 1, "-r")
	}
	if err := d.zfs(ctx, args...); err != nil && !noDataset(err) {
		return busy(name, err)
	}
	return nil
}

func (d datasets) isLayer(name string) bool { return strings.HasPrefix(name, d.layer("")) }

// mount mounts a dataset at its mount point, a directory made where it is
// missing.
func (d datasets) mount(ctx context.Context, name, point string) error {
	if err := os.MkdirAll(point, 0o755); err != nil {
		return err
	}
	return d.zfs(ctx, "mount", name)
}

func (d datasets) snapshot(ctx context.Context, name string) error {
	if err := d.check(name); err != nil {
		return err
	}
	return d.zfs(ctx, "snapshot", name+"@"+finalSnapshot)
}

// used is the bytes that a dataset has for itself: what it shares with its
// origin does not count.
func (d datasets) used(ctx context.Context, name string) (int64, error) {
	found, ok, err := d.one(ctx, name)
	if err == nil && !ok {
		err = errNotFound("dataset %s does not exist", name)
	}
	return found.used, err
}
