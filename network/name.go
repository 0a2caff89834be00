// SPDX-License-Identifier: BSD-2-Clause

package network

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/containerd/errdefs"
)

// maxIfName is how long an interface's name may be, on Linux and FreeBSD.
const maxIfName = 15

// mark tells this daemon's interfaces and namespaces from everybody else's: a
// hash of the state directory, which no two daemons share.
type mark string

func markOf(stateDir string) mark {
	if real, err := filepath.EvalSymlinks(stateDir); err == nil {
		stateDir = real
	}
	return mark(hash(8, stateDir))
}

// label is what an interface is marked with. kind is "c" for a container's
// link, "n" for a network's bridge.
func (m mark) label(kind, id string) string { return "satl:" + string(m) + ":" + kind + ":" + id }

// parse reads a label back; ok is false for what is not ours.
func (m mark) parse(label string) (kind, id string, ok bool) {
	rest, ok := strings.CutPrefix(label, "satl:"+string(m)+":")
	if !ok {
		return "", "", false
	}
	kind, id, ok = strings.Cut(rest, ":")
	return kind, id, ok && id != ""
}

// nsPrefix heads the name of each network namespace of ours; the container's
// ID follows.
func (m mark) nsPrefix() string { return "satl-" + string(m) + "-" }

// veth names the host's end of a container's link.
func (m mark) veth(containerID, inside string) string {
	return "sv" + hash(12, string(m), containerID, inside)
}

// inner names the container's end of its link, where it keeps a name of the
// host's (FreeBSD: it comes back to the host by itself when its jail goes, and
// must meet no other of the same name there).
func (m mark) inner(containerID, inside string) string {
	return "se" + strings.TrimPrefix(m.veth(containerID, inside), "sv")
}

// unit is the number that an interface is made under, before it has its name:
// out of the way of the numbers that the system gives by itself, which are the
// lowest free ones. attempt is above 0 after a collision.
func (m mark) unit(u unfinished, attempt int) int {
	const first, last = 1000, 32767 // if_clone(9) counts no further
	v, _ := strconv.ParseUint(hash(8, string(m), u.For, u.As, strconv.Itoa(attempt)), 16, 32)
	return first + int(v%(last-first))
}

// group is the interface group of everything that bears the mark. A group's
// name may not end in a digit and holds 15 characters (ifconfig(8), group).
func (m mark) group() string { return "satl" + string(m) + "g" }

// bridge names a network's bridge; attempt is above 0 after a collision.
func (m mark) bridge(networkID string, attempt int) string {
	return "sb" + hash(10, string(m), networkID, fmt.Sprint(attempt))
}

// linkGroup is the mark as a number, for the group of a Linux link.
func (m mark) linkGroup() uint32 {
	v, _ := strconv.ParseUint(string(m), 16, 32)
	return uint32(v)
}

func hash(n int, parts ...string) string {
	sum := sha256.Sum256([]byte(strings.Join(parts, "\x00")))
	return hex.EncodeToString(sum[:])[:n]
}

// checkID refuses an ID that could not be part of a file's name or a label.
func checkID(what, id string) error {
	if id == "" || len(id) > 128 || id[0] == '.' || id[0] == '-' {
		return fmt.Errorf("%s ID %q: %w", what, id, errdefs.ErrInvalidArgument)
	}
	for _, c := range []byte(id) {
		ok := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '_' || c == '-' || c == '.'
		if !ok {
			return fmt.Errorf("%s ID %q: only letters, digits, '_', '-' and '.': %w", what, id, errdefs.ErrInvalidArgument)
		}
	}
	return nil
}

// checkIfName refuses a bridge name that the kernel would refuse or that would
// need quoting in a packet filter's rules.
func checkIfName(name string) error {
	if name == "" || len(name) > maxIfName {
		return fmt.Errorf("network name %q: 1 to %d characters, it is also the bridge's name: %w", name, maxIfName, errdefs.ErrInvalidArgument)
	}
	if err := checkID("network", name); err != nil {
		return fmt.Errorf("network name %q: only letters, digits, '_', '-' and '.': %w", name, errdefs.ErrInvalidArgument)
	}
	return nil
}
