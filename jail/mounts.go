// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"bufio"
	"bytes"
	"cmp"
	"regexp"
	"slices"
	"strings"
)

// mountLine is one mount as `mount -p` prints it: device, mount point, type,
// options and two numbers. Blanks in a path are not escaped, and what stands
// between device and mount point is one blank or some tabs, so that the two
// can only be told apart by what one is looking for.
type mountLine struct {
	paths  string // device, blanks, mount point
	fstype string
}

var mountForm = regexp.MustCompile(`^(.*\S)[ \t]+(\S+)\t\S+[ \t]+\d+ \d+\s*$`)

// parseMounts reads the output of `mount -p`, which lists the mounts in the
// order in which they were made.
func parseMounts(out []byte) []mountLine {
	var mounts []mountLine
	lines := bufio.NewScanner(bytes.NewReader(out))
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if f := mountForm.FindStringSubmatch(lines.Text()); f != nil {
			mounts = append(mounts, mountLine{paths: f[1], fstype: f[2]})
		}
	}
	return mounts
}

// pointBelow is the mount point if it lies below dir, an absolute path.
func (m mountLine) pointBelow(dir string) (string, bool) {
	for _, blank := range []string{"\t", " "} {
		if i := strings.Index(m.paths, blank+dir+"/"); i >= 0 {
			return m.paths[i+1:], true
		}
	}
	return "", false
}

// pointsBelow lists the mount points below dir in the order in which they can
// be unmounted: the deepest first, and of two at one place the later.
func pointsBelow(mounts []mountLine, dir string) []string {
	var points []string
	for _, m := range slices.Backward(mounts) {
		if p, ok := m.pointBelow(dir); ok {
			points = append(points, p)
		}
	}
	slices.SortStableFunc(points, func(a, b string) int {
		return cmp.Compare(strings.Count(b, "/"), strings.Count(a, "/"))
	})
	return points
}

// jailTypes are the file systems that a bundle mounts.
var jailTypes = []string{"devfs", "fdescfs", "tmpfs", "nullfs", "linprocfs", "linsysfs"}

// orphanPoints lists the mount points below roots of containers that nobody
// knows of: ROOTS/ID/rootfs/..., of the types that a bundle mounts, where known
// does not know ID. The order is that of pointsBelow.
func orphanPoints(mounts []mountLine, roots string, known func(id string) bool) []string {
	var orphans []mountLine
	for _, m := range mounts {
		p, ok := m.pointBelow(roots)
		if !ok || !slices.Contains(jailTypes, m.fstype) {
			continue
		}
		id, below, _ := strings.Cut(p[len(roots)+1:], "/")
		if strings.HasPrefix(below, rootName+"/") && !known(id) {
			orphans = append(orphans, m)
		}
	}
	return pointsBelow(orphans, roots)
}

// rootName is a container's root in its directory, as package image names it.
const rootName = "rootfs"
