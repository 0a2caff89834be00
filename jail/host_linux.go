// SPDX-License-Identifier: BSD-2-Clause

package jail

import (
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	specs "github.com/opencontainers/runtime-spec/specs-go"
	"golang.org/x/sys/unix"
)

// newDriver makes this platform's driver.
func newDriver(cfg Config) driver {
	return runc{
		path: cfg.RuntimePath, root: filepath.Join(cfg.StateDir, "runtime"), initPath: cfg.InitPath,
		host: hostFacts{capBounding: capBounding(), masked: maskedOfHost(), devices: devicesOfHost()},
	}
}

// runtimeName and runtimeInstall say what to look for, and what to say when it
// is not there.
const (
	runtimeName    = "runc"
	runtimeInstall = "install it (on Debian: apt-get install runc) or give its path with --runtime"
)

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
