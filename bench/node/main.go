// SPDX-License-Identifier: BSD-2-Clause

// Command node measures one node's daemon from the outside, by the Docker API:
// satld and, where it is named too, dockerd, doing the same work in one run.
//
//	node -satld SOCKET=PIDS [-dockerd SOCKET=PIDS] -image app:1
//
// It prints figures and ratios; it judges nothing.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/docker/docker/client"
)

func main() {
	satld := flag.String("satld", "", "satld as SOCKET=PATTERN; PATTERN is found in the command lines of its processes")
	dockerd := flag.String("dockerd", "", "dockerd likewise")
	image := flag.String("image", "app:1", "image to run; must be loaded in both")
	network := flag.String("dockerd-network", "host", "network of dockerd's tasks")
	tasks := flag.Int("tasks", 30, "tasks of the many-tasks measurement")
	flag.Parse()
	ctx := context.Background()
	var results []figures
	var names []string
	for _, t := range []struct{ name, spec, network string }{{"satld", *satld, ""}, {"dockerd", *dockerd, *network}} {
		if t.spec == "" {
			continue
		}
		socket, pattern, ok := strings.Cut(t.spec, "=")
		if !ok {
			log.Fatalf("-%s %q: want SOCKET=PATTERN", t.name, t.spec)
		}
		api, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithAPIVersionNegotiation())
		if err != nil {
			log.Fatal(err)
		}
		target := &target{name: t.name, api: api, pattern: pattern, image: *image, network: t.network}
		f, err := target.measure(ctx, *tasks)
		if err != nil {
			log.Fatalf("%s: %v", t.name, err)
		}
		results, names = append(results, f), append(names, t.name)
	}
	report(os.Stdout, names, results, *tasks)
}

// figures are what is measured of one daemon.
type figures struct {
	CreateToRunning time.Duration
	Many            time.Duration // all of the many tasks RUNNING
	ManyCPU         float64       // seconds of the whole machine
	ProbeCPU        time.Duration // of the whole machine, for one exec probe of `true`
	TaskMemory      float64       // MiB of the daemon's processes for each task
	IdleMemory      float64       // MiB of the daemon's processes without tasks
	FailToFailed    time.Duration // 2 retries x 1 s, grace 1 s
	IdleCPU         float64       // percent of one core of the daemon's own processes, 20 tasks probed each 10 s
	ProbedMemory    float64       // MiB of the daemon's processes then
}

func report(out *os.File, names []string, results []figures, tasks int) {
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', tabwriter.AlignRight)
	defer w.Flush()
	row := func(what string, value func(figures) float64, unit string) {
		fmt.Fprintf(w, "%s\t", what)
		for _, r := range results {
			fmt.Fprintf(w, "%.2f %s\t", value(r), unit)
		}
		if len(results) == 2 && value(results[1]) != 0 {
			fmt.Fprintf(w, "x %.2f\t", value(results[0])/value(results[1]))
		}
		fmt.Fprintln(w)
	}
	fmt.Fprintf(w, "\t%s\t", strings.Join(names, "\t"))
	if len(results) == 2 {
		fmt.Fprint(w, "ratio\t")
	}
	fmt.Fprintln(w)
	row("create to RUNNING, one task", func(f figures) float64 { return f.CreateToRunning.Seconds() }, "s")
	row(fmt.Sprintf("%d tasks to RUNNING", tasks), func(f figures) float64 { return f.Many.Seconds() }, "s")
	row(fmt.Sprintf("%d tasks, CPU of the machine", tasks), func(f figures) float64 { return f.ManyCPU }, "cpu-s")
	row("CPU of one exec probe", func(f figures) float64 { return f.ProbeCPU.Seconds() * 1000 }, "ms")
	row("memory of one task", func(f figures) float64 { return f.TaskMemory }, "MiB")
	row("memory without tasks", func(f figures) float64 { return f.IdleMemory }, "MiB")
	row("failing probe to FAILED (2 x 1 s, grace 1 s)", func(f figures) float64 { return f.FailToFailed.Seconds() }, "s")
	row("20 probed tasks, CPU of the daemon", func(f figures) float64 { return f.IdleCPU }, "% of a core")
	row("20 probed tasks, memory of the daemon", func(f figures) float64 { return f.ProbedMemory }, "MiB")
}
