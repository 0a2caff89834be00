// SPDX-License-Identifier: BSD-2-Clause

package image

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"satld/platform"
	"satld/platform/command"
)

// mountsBelow lists the mount points at or below path, which is absolute and
// free of symbolic links, in this process's mount namespace.
func mountsBelow(path string) ([]string, error) {
	if platform.OS == "freebsd" {
		return toolMountsBelow(command.Run, path)
	}
	data, err := os.ReadFile("/proc/self/mountinfo")
	if err != nil {
		return nil, err
	}
	var found []string
	for line := range strings.Lines(string(data)) {
		if point := mountPoint(line); point != "" && isBelow(path, point) {
			found = append(found, point)
		}
	}
	return found, nil
}

// mountPoint is the fifth field of a line of mountinfo (proc_pid_mountinfo(5))
// with its octal escapes undone.
func mountPoint(line string) string {
	fields := strings.Fields(line)
	if len(fields) < 5 {
		return ""
	}
	parts := strings.Split(fields[4], `\`)
	var b strings.Builder
	b.WriteString(parts[0])
	for _, p := range parts[1:] {
		if len(p) >= 3 {
			if n, err := strconv.ParseUint(p[:3], 8, 8); err == nil {
				b.WriteByte(byte(n))
				b.WriteString(p[3:])
				continue
			}
		}
		b.WriteString(`\` + p)
	}
	return b.String()
}

// openSameDevice opens the directory base in fd without crossing any mount
// point, a bind mount of the same device included; EXDEV tells that it would.
func openSameDevice(fd int, base string) (int, error) {
	dir, err := unix.Openat2(fd, base, &unix.OpenHow{
		Flags:   unix.O_RDONLY | unix.O_DIRECTORY | unix.O_NOFOLLOW | unix.O_CLOEXEC,
		Resolve: unix.RESOLVE_NO_XDEV | unix.RESOLVE_NO_SYMLINKS | unix.RESOLVE_BENEATH,
	})
	if errors.Is(err, unix.ENOSYS) { // before Linux 5.6
		return openDirSameDevice(fd, base)
	}
	return dir, err
}

// clearMounts takes off what a crashed probe left mounted below dir, where
// nothing else is ever mounted.
func clearMounts(dir string) error {
	if platform.OS == "freebsd" {
		return unmountBelow(command.Run, dir)
	}
	mounts, err := mountsBelow(dir)
	if err != nil {
		return err
	}
	for _, m := range slices.Backward(mounts) {
		if err := unix.Unmount(m, unix.UMOUNT_NOFOLLOW|unix.MNT_DETACH); err != nil {
			return fmt.Errorf("umount %s: %w", m, err)
		}
	}
	return nil
}

// syncFS writes what is cached of the file system of dir to the disk, and
// reports what could not be written.
func syncFS(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer d.Close()
	return unix.Syncfs(int(d.Fd()))
}
