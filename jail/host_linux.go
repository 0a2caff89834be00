// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"context"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"

	"satld/platform"
)

// system makes what this platform runs containers with.
func system(ctx context.Context, m *Manager, daemonDir string) (driver, host, prober, error) {
	if platform.OS == "freebsd" {
		return jailSystem(ctx, m, daemonDir)
	}
	d := runc{
		path: m.cfg.RuntimePath, root: filepath.Join(m.cfg.StateDir, "runtime"), initPath: m.cfg.InitPath,
		host: hostFacts{capBounding: capBounding(), masked: maskedOfHost(), devices: devicesOfHost()},
	}
	p, err := newNSProber(m, m.cfg.InitPath)
	if err != nil {
		return nil, nil, nil, err
	}
	return d, groups{driver: d, memories: m.memories, log: m.log}, p, nil
}

// capBounding is our own bounding set; everything when it cannot be read.
func capBounding() uint64 {
	b, err := os.ReadFile("/proc/self/status")
	if err == nil {
		for line := range strings.Lines(string(b)) {
			if rest, ok := strings.CutPrefix(line, "CapBnd:"); ok {
				if mask, err := strconv.ParseUint(strings.TrimSpace(rest), 16, 64); err == nil {
					return mask
				}
			}
		}
	}
	return ^uint64(0)
}

// maskedOfHost: Docker masks these where they exist (GHSA-jq35-85cj-fj4p).
func maskedOfHost() []string {
	paths, _ := filepath.Glob("/sys/devices/system/cpu/cpu[0-9]*/thermal_throttle")
	return paths
}

// devicesOfHost lists the nodes of /dev, but for the directories that a
// container has of its own.
func devicesOfHost() []specs.LinuxDevice {
	var devs []specs.LinuxDevice
	filepath.WalkDir("/dev", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if d.IsDir() {
			switch path {
			case "/dev/pts", "/dev/shm", "/dev/mqueue", "/dev/fd", "/dev/.lxc", "/dev/.lxd-mounts", "/dev/.udev":
				return fs.SkipDir
			}
			return nil
		}
		if d.Type()&fs.ModeDevice == 0 || path == "/dev/console" {
			return nil
		}
		var st unix.Stat_t
		if err := unix.Lstat(path, &st); err != nil {
			return nil
		}
		kind := "b"
		if st.Mode&unix.S_IFMT == unix.S_IFCHR {
			kind = "c"
		}
		mode := os.FileMode(st.Mode & 0o777)
		devs = append(devs, specs.LinuxDevice{
			Path: path, Type: kind, Major: int64(unix.Major(uint64(st.Rdev))), Minor: int64(unix.Minor(uint64(st.Rdev))),
			FileMode: &mode, UID: &st.Uid, GID: &st.Gid,
		})
		return nil
	})
	return devs
}
