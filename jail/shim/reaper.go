// SPDX-License-Identifier: BSD-2-Clause

package shim

import (
	"os"
	"sync"
	"syscall"
)

// reaper is the one place that waits for children: the runtime's commands,
// the containers' first processes that become ours when the runtime's create
// ends, and strays. One that ends before anybody asked for it is kept while a
// create runs, since it may be the very container that is being made.
type reaper struct {
	mu       sync.Mutex
	waiting  map[int]chan<- syscall.WaitStatus
	early    map[int]syscall.WaitStatus
	creating int
}

func newReaper() *reaper {
	return &reaper{waiting: make(map[int]chan<- syscall.WaitStatus), early: make(map[int]syscall.WaitStatus)}
}

// run reaps whenever children sends, until it is closed.
func (r *reaper) run(children <-chan os.Signal) {
	for range children {
		r.reap()
	}
}

func (r *reaper) reap() {
	for {
		// The lock spans wait and delivery, and start and its registration,
		// so a pid cannot be used anew in between.
		r.mu.Lock()
		var ws syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			r.mu.Unlock()
			continue
		}
		if err != nil || pid <= 0 {
			r.mu.Unlock()
			return
		}
		if ch, ok := r.waiting[pid]; ok {
			delete(r.waiting, pid)
			ch <- ws // has room for one
		} else if r.creating > 0 {
			r.early[pid] = ws
		}
		r.mu.Unlock()
	}
}

// start runs a command; its status comes on the channel.
func (r *reaper) start(argv []string, files []uintptr, sys *syscall.SysProcAttr) (int, <-chan syscall.WaitStatus, error) {
	ch := make(chan syscall.WaitStatus, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: files, Sys: sys})
	if err != nil {
		return 0, nil, err
	}
	r.waiting[pid] = ch
	return pid, ch, nil
}

// claim asks for the status of a process that the runtime left to us.
func (r *reaper) claim(pid int) <-chan syscall.WaitStatus {
	ch := make(chan syscall.WaitStatus, 1)
	r.mu.Lock()
	defer r.mu.Unlock()
	if ws, ok := r.early[pid]; ok {
		delete(r.early, pid)
		ch <- ws
	} else {
		r.waiting[pid] = ch
	}
	return ch
}

// begin and end bracket a create.
func (r *reaper) begin() {
	r.mu.Lock()
	r.creating++
	r.mu.Unlock()
}

func (r *reaper) end() {
	r.mu.Lock()
	if r.creating--; r.creating == 0 {
		clear(r.early)
	}
	r.mu.Unlock()
}

// code is the exit code as shells and Docker count it.
func code(ws syscall.WaitStatus) int {
	if ws.Signaled() {
		return 128 + int(ws.Signal())
	}
	return ws.ExitStatus()
}
