// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"errors"
	"strings"
	"syscall"
)

// lookPath finds the command as execvp(3) would with the container's PATH. The
// words of its errors are those of the runtimes.
func lookPath(name string, env []string, cwd string) (string, error) {
	if strings.Contains(name, "/") {
		path := name
		if path[0] != '/' {
			path = strings.TrimSuffix(cwd, "/") + "/" + path
		}
		if err := executable(path); err != nil {
			return "", errors.New("exec: \"" + name + "\": " + err.Error())
		}
		return path, nil
	}
	list := ""
	for _, e := range env {
		if v, ok := strings.CutPrefix(e, "PATH="); ok {
			list = v
		}
	}
	for dir := range strings.SplitSeq(list, ":") {
		switch {
		case dir == "":
			dir = cwd
		case dir[0] != '/':
			dir = strings.TrimSuffix(cwd, "/") + "/" + dir
		}
		path := strings.TrimSuffix(dir, "/") + "/" + name
		if executable(path) == nil {
			return path, nil
		}
	}
	return "", errors.New("exec: \"" + name + "\": executable file not found in $PATH")
}

func executable(path string) error {
	var st syscall.Stat_t
	if err := syscall.Stat(path, &st); err != nil {
		return errors.New("stat " + path + ": " + err.Error())
	}
	switch {
	case st.Mode&syscall.S_IFMT == syscall.S_IFDIR:
		return errors.New("is a directory")
	case st.Mode&0o111 == 0:
		return errors.New("permission denied")
	}
	return nil
}
