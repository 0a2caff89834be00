// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"os"
	"os/signal"
	"syscall"
)

// firstProcess is `satl-init -- COMMAND`: it runs the command, passes signals
// on to it, reaps whatever is left to it, and ends as the command does.
func firstProcess(argv []string) int {
	signals := make(chan os.Signal, 64)
	signal.Notify(signals)
	path, err := lookPath(argv[0], os.Environ(), workingDir())
	if err != nil {
		os.Stderr.WriteString("satl-init: " + err.Error() + "\n")
		return 127
	}
	pid, err := syscall.ForkExec(path, argv, &syscall.ProcAttr{
		Env: os.Environ(), Files: []uintptr{0, 1, 2}, Sys: &syscall.SysProcAttr{Setsid: !terminal()},
	})
	if err != nil {
		os.Stderr.WriteString("satl-init: exec: \"" + argv[0] + "\": " + err.Error() + "\n")
		return 126
	}
	for sig := range signals {
		s, _ := sig.(syscall.Signal)
		switch s {
		case syscall.SIGCHLD:
			for {
				var ws syscall.WaitStatus
				got, err := syscall.Wait4(-1, &ws, syscall.WNOHANG, nil)
				if err != nil || got <= 0 {
					break
				}
				if got != pid {
					continue
				}
				if ws.Signaled() {
					return 128 + int(ws.Signal())
				}
				if ws.Exited() {
					return ws.ExitStatus()
				}
			}
		case syscall.SIGURG, syscall.SIGPIPE: // the Go runtime's own; our own
		default:
			syscall.Kill(pid, s)
		}
	}
	return 1
}

func workingDir() string {
	dir, err := os.Getwd()
	if err != nil {
		return "/"
	}
	return dir
}

// terminal tells whether stdin is one: the command then stays in its session.
func terminal() bool {
	st, err := os.Stdin.Stat()
	return err == nil && st.Mode()&os.ModeCharDevice != 0 && st.Mode()&os.ModeDevice != 0 && !isNull(st)
}

func isNull(st os.FileInfo) bool {
	sys, ok := st.Sys().(*syscall.Stat_t)
	return ok && sys.Rdev == 0x103
}
