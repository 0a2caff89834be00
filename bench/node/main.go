// SPDX-License-Identifier: BSD-2-Clause

// Command node measures one node's daemon from the outside, by the Docker API:
// satld and, where it is named too, dockerd, doing the same work in one run.
//
//	node compare -satld SOCKET=CGROUP [-dockerd SOCKET=CGROUP] -image app:1
//	node withdrawal -satld SOCKET=CGROUP -image app:1
//
// CGROUP is the directory of the cgroup (v2) that the daemon was started in.
// Figures, ratios and targets are printed; nothing is judged.
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
	log.SetFlags(0)
	log.SetPrefix("bench/node: ")
	if len(os.Args) < 2 {
		log.Fatal("want compare or withdrawal")
	}
	flags := flag.NewFlagSet(os.Args[1], flag.ExitOnError)
	satld := flags.String("satld", "", "satld as SOCKET=CGROUP")
	dockerd := flags.String("dockerd", "", "dockerd likewise")
	image := flags.String("image", "app:1", "image to run; must be loaded in both; holds busybox")
	network := flags.String("dockerd-network", "host", "network of dockerd's tasks")
	tasks := flags.Int("tasks", 30, "tasks of the many-tasks measurement")
	rounds := flags.Int("rounds", 5, "repetitions of the short measurements")
	_ = flags.Parse(os.Args[2:])
	ctx := context.Background()
	switch os.Args[1] {
	case "compare":
		var results []figures
		var names []string
		for _, t := range []*target{open("satld", *satld, *image, ""), open("dockerd", *dockerd, *image, *network)} {
			if t == nil {
				continue
			}
			f, err := t.measure(ctx, *tasks, *rounds)
			if err != nil {
				log.Fatalf("%s: %v", t.name, err)
			}
			results, names = append(results, f), append(names, t.name)
		}
		report(names, results, *tasks)
	case "withdrawal":
		t := open("satld", *satld, *image, "")
		if t == nil {
			log.Fatal("withdrawal: -satld is missing")
		}
		if err := t.withdrawal(ctx, *rounds); err != nil {
			log.Fatal(err)
		}
	default:
		log.Fatalf("%q: want compare or withdrawal", os.Args[1])
	}
}

// open is nil for a daemon that is not given.
func open(name, spec, image, network string) *target {
	if spec == "" {
		return nil
	}
	socket, dir, ok := strings.Cut(spec, "=")
	if !ok {
		log.Fatalf("-%s %q: want SOCKET=CGROUP", name, spec)
	}
	api, err := client.NewClientWithOpts(client.WithHost("unix://"+socket), client.WithAPIVersionNegotiation())
	if err != nil {
		log.Fatal(err)
	}
	return &target{name: name, api: api, group: group(dir), image: image, network: network}
}

// figures are what is measured of one daemon.
type figures struct {
	Create     []time.Duration // of one task, to RUNNING
	Many       time.Duration   // all of the many tasks RUNNING
	ManyCPU    time.Duration   // of the daemon and all that it started
	ProbeCPU   time.Duration   // the same, for one exec probe of `true`
	Idle, Task memory          // of the daemon's processes, without tasks and for each
	Failures   []failure       // 2 retries x 1 s, grace 1 s
	IdleCPU    float64         // percent of one core of the daemon's own processes, 20 tasks probed each 10 s
	Probed     memory          // of the daemon's processes then
}

// row is one line of the report.
type row struct {
	what, unit string
	value      func(figures) float64
	target     string
}

func rows(tasks int) []row {
	const half = "less than half of dockerd's"
	return []row{
		{"create to RUNNING, one task", "s", func(f figures) float64 { return median(f.Create).Seconds() }, "< 1 s"},
		{fmt.Sprintf("%d tasks to RUNNING", tasks), "s", func(f figures) float64 { return f.Many.Seconds() }, half},
		{fmt.Sprintf("%d tasks to RUNNING, CPU", tasks), "cpu-s", func(f figures) float64 { return f.ManyCPU.Seconds() }, half},
		{"CPU of one exec probe", "ms", func(f figures) float64 { return f.ProbeCPU.Seconds() * 1000 }, half},
		{"memory of one task, RSS", "MiB", func(f figures) float64 { return f.Task.RSS }, half},
		{"memory of one task, PSS", "MiB", func(f figures) float64 { return f.Task.PSS }, half},
		{"memory without tasks, RSS", "MiB", func(f figures) float64 { return f.Idle.RSS }, half},
		{"memory without tasks, PSS", "MiB", func(f figures) float64 { return f.Idle.PSS }, half},
		{"failure to FAILED, 2 x 1 s, grace 1 s", "s", func(f figures) float64 { return over(f.Failures, failure.total) }, half},
		{"  of that, to the verdict", "s", func(f figures) float64 { return over(f.Failures, func(f failure) time.Duration { return f.verdict }) }, "1.5 s by the rule, mean"},
		{"  from the verdict to the end of its process", "s", func(f figures) float64 { return over(f.Failures, func(f failure) time.Duration { return f.end }) }, "1 s, the grace"},
		{"  from its end to FAILED", "s", func(f figures) float64 { return over(f.Failures, func(f failure) time.Duration { return f.failed }) }, "-"},
		{"20 probed tasks, CPU of the daemon itself", "% core", func(f figures) float64 { return f.IdleCPU }, "< 5 % of a core"},
		{"20 probed tasks, RSS of the daemon", "MiB", func(f figures) float64 { return f.Probed.RSS }, "< 100 MiB"},
	}
}

func report(names []string, results []figures, tasks int) {
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	defer w.Flush()
	head := "\t" + strings.Join(names, "\t") + "\t"
	if len(results) == 2 {
		head += "ratio\t"
	}
	fmt.Fprintln(w, head+"target of "+names[0])
	for _, r := range rows(tasks) {
		fmt.Fprintf(w, "%s\t", r.what)
		for _, f := range results {
			fmt.Fprintf(w, "%.2f %s\t", r.value(f), r.unit)
		}
		if len(results) == 2 {
			ratio := "-\t"
			if of := r.value(results[1]); of > 0 {
				ratio = fmt.Sprintf("%.2f\t", r.value(results[0])/of)
			}
			fmt.Fprint(w, ratio)
		}
		fmt.Fprintln(w, r.target)
	}
}
