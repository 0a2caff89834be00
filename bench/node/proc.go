// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"bytes"
	"log"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"
)

// tick is Linux's USER_HZ.
const tick = time.Second / 100

// machineCPU is the time that all cores were busy since boot.
func machineCPU() time.Duration {
	data, err := os.ReadFile("/proc/stat")
	if err != nil {
		log.Fatal(err)
	}
	line, _, _ := strings.Cut(string(data), "\n")
	var busy time.Duration
	for i, f := range strings.Fields(line)[1:] {
		n, err := strconv.ParseInt(f, 10, 64)
		if err != nil {
			log.Fatal(err)
		}
		if i != 3 && i != 4 && i < 8 { // idle, iowait, guests
			busy += time.Duration(n) * tick
		}
	}
	return busy
}

// processes are the live processes whose command line holds pattern, this
// one aside.
func processes(pattern string) []string {
	all, _ := filepath.Glob("/proc/[0-9]*")
	var out []string
	for _, dir := range all {
		cmdline, err := os.ReadFile(dir + "/cmdline")
		if err != nil || dir == "/proc/"+strconv.Itoa(os.Getpid()) {
			continue
		}
		args := bytes.ReplaceAll(cmdline, []byte{0}, []byte{' '})
		if bytes.Contains(args, []byte(pattern)) && !bytes.Contains(args, []byte("bench/")) {
			out = append(out, dir)
		}
	}
	return out
}

// memory is the resident memory of the processes, in MiB.
func memory(pattern string) float64 {
	var kib int64
	for _, dir := range processes(pattern) {
		data, err := os.ReadFile(dir + "/status")
		if err != nil {
			continue // it ended meanwhile
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				n, _ := strconv.ParseInt(strings.Fields(rest)[0], 10, 64)
				kib += n
			}
		}
	}
	return float64(kib) / 1024
}

// processCPU is the CPU time of the processes themselves, without their
// ended children.
func processCPU(pattern string) time.Duration {
	var total time.Duration
	for _, dir := range processes(pattern) {
		data, err := os.ReadFile(dir + "/stat")
		if err != nil {
			continue
		}
		_, rest, ok := strings.Cut(string(data), ") ")
		if !ok {
			continue
		}
		fields := strings.Fields(rest)
		for _, i := range []int{11, 12} { // utime, stime
			n, _ := strconv.ParseInt(fields[i], 10, 64)
			total += time.Duration(n) * tick
		}
	}
	return total
}
