// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"satld/platform/command"
)

// toolBound is how long one call of zfs(8), mount(8) or umount(8) may take. A
// pool at work on something large answers late; one that lost its disks never
// does.
const toolBound = time.Minute

// call runs a tool.
func call(ctx context.Context, run command.Runner, argv ...string) (string, error) {
	return run(ctx, command.Command{Argv: argv, Bound: toolBound})
}

// mountEntry is one line of `mount -p` (mount(8), FreeBSD).
type mountEntry struct {
	from string // device, dataset or directory
	on   string // mount point
	kind string // zfs, nullfs, devfs ...
}

// mountTable lists what is mounted on a FreeBSD host, in the order in which it
// was: what is mounted below something comes after it. -p implies -v, which
// also shows what ocijail mounts with MNT_IGNORE.
func mountTable(ctx context.Context, run command.Runner) ([]mountEntry, error) {
	out, err := call(ctx, run, "mount", "-p")
	if err != nil {
		return nil, err
	}
	return parseMountTable(out)
}

// parseMountTable reads the output of `mount -p`. Its columns are set apart by
// tabs up to 24 characters and by one space from there on (putfsent in
// sbin/mount/mount.c), names with spaces in them are not marked, and only the
// file system's type is surely followed by a tab. So it is read from the end;
// where a long first name leaves several readings open, all are given: who
// asks what is mounted below a path must miss nothing.
func parseMountTable(text string) ([]mountEntry, error) {
	var all []mountEntry
	for line := range strings.Lines(text) {
		line = strings.TrimRight(line, "\n")
		names, kind, ok := cutMountLine(line)
		if !ok {
			return nil, fmt.Errorf("mount -p printed a line that is none of its own: %q", line)
		}
		for _, m := range readNames(names) {
			m.kind = kind
			all = append(all, m)
		}
	}
	return all, nil
}

// cutMountLine cuts the numbers, the options and the type off a line.
func cutMountLine(line string) (names, kind string, ok bool) {
	rest, numbers, found := cutLast(line, "\t")
	if !found || !strings.Contains(numbers, " ") {
		return "", "", false
	}
	rest, _, found = cutLast(strings.TrimRight(rest, " \t"), "\t") // options
	if !found {
		return "", "", false
	}
	rest = strings.TrimRight(rest, " \t")
	i := strings.LastIndexAny(rest, " \t")
	if i < 0 {
		return "", "", false
	}
	names, kind = strings.TrimRight(rest[:i], " \t"), rest[i+1:]
	return names, kind, kind != "" && strings.Contains(names, "/")
}

func cutLast(s, sep string) (before, after string, found bool) {
	i := strings.LastIndex(s, sep)
	if i < 0 {
		return s, "", false
	}
	return s[:i], s[i+len(sep):], true
}

// readNames splits "device, gap, mount point". Mount points are absolute.
func readNames(names string) []mountEntry {
	if from, on, ok := cutLast(names, "\t"); ok {
		return []mountEntry{{from: strings.TrimRight(from, "\t"), on: on}}
	}
	var all []mountEntry
	for i := range len(names) {
		if strings.HasPrefix(names[i:], " /") {
			all = append(all, mountEntry{from: names[:i], on: names[i+1:]})
		}
	}
	return all
}

// toolMountsBelow lists the mount points at or below path on a FreeBSD host.
func toolMountsBelow(run command.Runner, path string) ([]string, error) {
	all, err := mountTable(context.Background(), run)
	if err != nil {
		return nil, err
	}
	var found []string
	for _, m := range all {
		if isBelow(path, m.on) {
			found = append(found, m.on)
		}
	}
	return found, nil
}

// unmountBelow takes off everything that is mounted at or below dir, the
// deepest first, whoever is in it.
func unmountBelow(run command.Runner, dir string) error {
	points, err := toolMountsBelow(run, dir)
	if err != nil {
		return err
	}
	for _, p := range slices.Backward(points) {
		if _, err := call(context.Background(), run, "umount", "-f", p); err != nil {
			return err
		}
	}
	return nil
}
