// SPDX-License-Identifier: BSD-2-Clause

//go:build !fakefreebsd

package jail

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

// cpu is what this process and all that it waited for have used.
func cpu() (self, children time.Duration) {
	used := func(who int) time.Duration {
		var u syscall.Rusage
		syscall.Getrusage(who, &u)
		return time.Duration(u.Utime.Nano() + u.Stime.Nano())
	}
	return used(syscall.RUSAGE_SELF), used(syscall.RUSAGE_CHILDREN)
}

// measure reports what op costs in CPU time, our own and that of the commands it runs.
func measure(b *testing.B, op func()) {
	op() // what is done once is not counted
	s0, c0 := cpu()
	for b.Loop() {
		op()
	}
	s1, c1 := cpu()
	ms := func(d time.Duration) float64 { return float64(d.Microseconds()) / 1000 / float64(b.N) }
	b.ReportMetric(ms(s1-s0), "self-cpu-ms/op")
	b.ReportMetric(ms(c1-c0), "children-cpu-ms/op")
	b.ReportMetric(ms(s1-s0+c1-c0), "cpu-ms/op")
}

// BenchmarkProbe is one exec probe of a trivial command, in our way and, in
// the same run, by `runc exec`.
func BenchmarkProbe(b *testing.B) {
	n := newNode(b)
	s := n.spec(noReaper)
	n.start(s)
	b.Run("satl-init", func(b *testing.B) {
		measure(b, func() {
			if code, err := n.RunProbe(context.Background(), s.ID, []string{"/bin/true"}, io.Discard, nil); code != 0 || err != nil {
				b.Fatal(code, err)
			}
		})
	})
	b.Run("runc-exec", func(b *testing.B) {
		measure(b, func() {
			if out, err := exec.Command("runc", "--root", n.driver.stateDir(), "exec", s.ID, "/bin/true").CombinedOutput(); err != nil {
				b.Fatalf("%v: %s", err, out)
			}
		})
	})
}

// BenchmarkContainer is a container's life from create to forget. The shim is
// a process of its own, and runc's create is its child: both are in shim-cpu.
func BenchmarkContainer(b *testing.B) {
	n := newNode(b)
	root := b.TempDir()
	fillBusybox(b, root)
	ctx := context.Background()
	pid, _, err := n.shim.Hello(ctx)
	if err != nil {
		b.Fatal(err)
	}
	var create, start time.Duration
	before := cpuOf(b, pid)
	runs := 0
	measure(b, func() {
		runs++
		s := Spec{ID: newID(), Rootfs: root, Args: []string{"true"}}
		t0 := time.Now()
		if _, err := n.Create(ctx, s); err != nil {
			b.Fatal(err)
		}
		t1 := time.Now()
		if _, err := n.Start(ctx, s.ID); err != nil {
			b.Fatal(err)
		}
		create, start = create+t1.Sub(t0), start+time.Since(t1)
		if _, err := n.Wait(ctx, s.ID); err != nil {
			b.Fatal(err)
		}
		if err := n.Delete(ctx, s.ID); err != nil {
			b.Fatal(err)
		}
		if err := n.Forget(ctx, s.ID); err != nil {
			b.Fatal(err)
		}
	})
	b.ReportMetric(float64(create.Microseconds())/1000/float64(runs), "create-ms/op")
	b.ReportMetric(float64(start.Microseconds())/1000/float64(runs), "start-ms/op")
	b.ReportMetric(float64((cpuOf(b, pid)-before).Microseconds())/1000/float64(runs), "shim-cpu-ms/op")
}

// cpuOf is what another process and its reaped children have used, to the tick.
func cpuOf(b *testing.B, pid int) time.Duration {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		b.Fatal(err)
	}
	f := strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))
	var ticks time.Duration
	for _, i := range []int{11, 12, 13, 14} { // utime, stime, cutime, cstime
		n, _ := strconv.Atoi(f[i])
		ticks += time.Duration(n)
	}
	return ticks * 10 * time.Millisecond // USER_HZ is 100
}

// BenchmarkShimMemory prints what the shim holds in memory, alone and with
// containers that say nothing.
func BenchmarkShimMemory(b *testing.B) {
	n := newNode(b)
	pid, _, err := n.shim.Hello(context.Background())
	if err != nil {
		b.Fatal(err)
	}
	rss := func() float64 {
		text, _ := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		for line := range strings.Lines(string(text)) {
			if rest, ok := strings.CutPrefix(line, "VmRSS:"); ok {
				kb, _ := strconv.Atoi(strings.TrimSuffix(strings.TrimSpace(rest), " kB"))
				return float64(kb)
			}
		}
		return 0
	}
	empty := rss()
	const containers = 20
	for range containers {
		n.start(n.spec(noReaper))
	}
	for b.Loop() {
	}
	b.ReportMetric(empty, "KiB-empty")
	b.ReportMetric((rss()-empty)/containers, "KiB-per-container")
}
