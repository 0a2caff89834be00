// SPDX-License-Identifier: BSD-2-Clause

// Command load asks an address for a page at a steady rate, each time over a
// new connection, and prints how many requests failed. It exits with 1 if any
// did: run it beside `docker service update` to see what an update costs.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"

	"satld/internal/loadgen"
)

func main() {
	var cfg loadgen.Config
	flag.StringVar(&cfg.Addr, "addr", "127.0.0.1:8080", "`host:port` to ask")
	flag.StringVar(&cfg.Path, "path", "/", "path to ask for")
	flag.IntVar(&cfg.Rate, "rate", 200, "new connections a `second`")
	flag.IntVar(&cfg.Most, "n", 0, "`requests` to make; 0 is until interrupted or -for is over")
	flag.DurationVar(&cfg.Timeout, "timeout", 10*time.Second, "of one request")
	limit := flag.Duration("for", 0, "how long to ask; 0 is until interrupted")
	flag.Parse()
	if flag.NArg() > 0 || cfg.Rate < 1 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if *limit > 0 {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, *limit)
		defer cancel()
	}
	report := loadgen.Run(ctx, cfg)
	fmt.Println(report)
	if len(report.Failures) > 0 || report.Requests == 0 {
		os.Exit(1)
	}
}
