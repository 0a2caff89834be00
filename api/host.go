// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"bufio"
	"io"
	"os"
	"runtime"
	"strings"

	"golang.org/x/sys/unix"
)

// hostFacts is what info and version tell of this machine; it does not change
// while the daemon runs.
type hostFacts struct {
	kernel, os, osVersion       string
	memory                      int64 // bytes; 0 when it cannot be told
	limits                      bool  // containers can be limited in memory, CPU and processes
	cgroupDriver, cgroupVersion string
}

func readHost() hostFacts {
	h := hostFacts{os: runtime.GOOS, memory: totalMemory()}
	var u unix.Utsname
	if unix.Uname(&u) == nil {
		h.kernel = unix.ByteSliceToString(u.Release[:])
	}
	if f, err := os.Open("/etc/os-release"); err == nil {
		h.os, h.osVersion = osRelease(f, h.os)
		_ = f.Close()
	}
	h.readLimits()
	return h
}

// osRelease reads the name and version out of an os-release(5) file.
func osRelease(r io.Reader, fallback string) (name, version string) {
	name = fallback
	for lines := bufio.NewScanner(r); lines.Scan(); {
		key, value, _ := strings.Cut(strings.TrimSpace(lines.Text()), "=")
		value = strings.Trim(value, `"'`)
		switch {
		case key == "PRETTY_NAME" && value != "":
			name = value
		case key == "VERSION_ID":
			version = value
		}
	}
	return name, version
}
