// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// openProc opens a procfs of this PID namespace that is mounted nowhere: the
// container's own may not be there, or be something else (fsopen(2)).
func openProc() (int, error) {
	const fsopen, fsconfig, fsmount = 430, 431, 432
	const cloexec, cmdCreate = 1, 6
	name := [...]byte{'p', 'r', 'o', 'c', 0}
	fs, _, errno := syscall.Syscall(fsopen, uintptr(unsafe.Pointer(&name)), cloexec, 0)
	if errno != 0 {
		return -1, errno
	}
	defer syscall.Close(int(fs))
	if _, _, errno := syscall.Syscall6(fsconfig, fs, cmdCreate, 0, 0, 0, 0); errno != 0 {
		return -1, errno
	}
	mnt, _, errno := syscall.Syscall(fsmount, fs, cloexec, 0)
	if errno != 0 {
		return -1, errno
	}
	return int(mnt), nil
}

// killDescendants sends SIGKILL to every process below this one, once.
func killDescendants(proc int) {
	parents := make(map[int]int)
	for _, pid := range pids(proc) {
		if ppid, ok := parentOf(proc, pid); ok {
			parents[pid] = ppid
		}
	}
	self := os.Getpid()
	for pid := range parents {
		for up, depth := pid, 0; up > 1 && depth < 4096; up, depth = parents[up], depth+1 {
			if parents[up] == self {
				syscall.Kill(pid, syscall.SIGKILL)
				break
			}
		}
	}
}

func pids(proc int) (list []int) {
	fd, err := syscall.Openat(proc, ".", syscall.O_RDONLY|syscall.O_DIRECTORY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	buf := make([]byte, 8192)
	for {
		n, err := syscall.ReadDirent(fd, buf)
		if err != nil || n <= 0 {
			return list
		}
		_, _, names := syscall.ParseDirent(buf[:n], -1, nil)
		for _, name := range names {
			if pid, err := strconv.Atoi(name); err == nil {
				list = append(list, pid)
			}
		}
	}
}

func parentOf(proc, pid int) (int, bool) {
	fd, err := syscall.Openat(proc, strconv.Itoa(pid)+"/stat", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return 0, false
	}
	defer syscall.Close(fd)
	buf := make([]byte, 1024)
	n, err := syscall.Read(fd, buf)
	if err != nil || n <= 0 {
		return 0, false
	}
	text := string(buf[:n])
	f := strings.Fields(text[strings.LastIndexByte(text, ')')+1:])
	if len(f) < 2 {
		return 0, false
	}
	ppid, err := strconv.Atoi(f[1])
	return ppid, err == nil
}
