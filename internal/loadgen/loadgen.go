// SPDX-License-Identifier: BSD-2-Clause

// Package loadgen makes HTTP requests at a steady rate, each over a connection of
// its own, and counts every one that fails. It is an open-loop generator: a
// slow answer does not hold up the next request, so nothing is left out of
// the count.
package loadgen

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"time"
)

// Config is what to ask, and how often.
type Config struct {
	Addr    string        // host:port, dialled for each request
	Path    string        // "" is /
	Rate    int           // new connections a second
	Timeout time.Duration // of one request from dial to its last byte; 0 is 10 s
	// Most ends the run after so many requests; 0 leaves that to the context.
	Most int
	// Dial opens a connection; nil is from where this program runs.
	Dial func(ctx context.Context, network, addr string) (net.Conn, error)
}

// Failure is one request that did not end in a whole answer of status 200.
type Failure struct {
	At  time.Time
	Err error
}

// Report counts what a run did.
type Report struct {
	Requests int
	Failures []Failure
	Bodies   map[string]int // answers by body, which names the replica
	Took     time.Duration
	P50, P99 time.Duration // of the requests that succeeded
	Late     int           // requests begun over 100 ms after their time: the generator was starved
}

// String is the report in one line, with the failures grouped by their words.
func (r Report) String() string {
	kinds := map[string]int{}
	for _, f := range r.Failures {
		kinds[f.Err.Error()]++
	}
	words := make([]string, 0, len(kinds))
	for k, n := range kinds {
		words = append(words, fmt.Sprintf("%d x %s", n, k))
	}
	slices.Sort(words)
	text := fmt.Sprintf("%d requests in %.1f s to %d replicas, %d failed, p50 %s, p99 %s, %d late",
		r.Requests, r.Took.Seconds(), len(r.Bodies), len(r.Failures), r.P50.Round(10*time.Microsecond), r.P99.Round(10*time.Microsecond), r.Late)
	if len(words) > 0 {
		text += ": " + strings.Join(words, "; ")
	}
	return text
}

// Run asks until ctx is done or Most requests were made, then waits for those
// under way: a run's end is no failure of theirs.
func Run(ctx context.Context, cfg Config) Report {
	if cfg.Path == "" {
		cfg.Path = "/"
	}
	if cfg.Timeout == 0 {
		cfg.Timeout = 10 * time.Second
	}
	if cfg.Dial == nil {
		cfg.Dial = new(net.Dialer).DialContext
	}
	var (
		mu     sync.Mutex
		wg     sync.WaitGroup
		report = Report{Bodies: map[string]int{}}
		times  []time.Duration
	)
	gap := time.Second / time.Duration(cfg.Rate)
	begun := time.Now()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for n := 0; cfg.Most == 0 || n < cfg.Most; n++ {
		due := begun.Add(time.Duration(n) * gap)
		timer.Reset(time.Until(due))
		select {
		case <-ctx.Done():
		case <-timer.C:
		}
		if ctx.Err() != nil {
			break
		}
		report.Requests++
		if time.Since(due) > 100*time.Millisecond {
			report.Late++
		}
		wg.Go(func() {
			at := time.Now()
			body, err := request(cfg)
			took := time.Since(at)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				report.Failures = append(report.Failures, Failure{at, err})
				return
			}
			report.Bodies[body]++
			times = append(times, took)
		})
	}
	wg.Wait()
	report.Took = time.Since(begun)
	if slices.Sort(times); len(times) > 0 {
		report.P50, report.P99 = times[len(times)/2], times[len(times)*99/100]
	}
	return report
}

// request is one GET over a new connection, which nothing is tried again for.
func request(cfg Config) (body string, err error) {
	deadline := time.Now().Add(cfg.Timeout)
	ctx, cancel := context.WithDeadline(context.Background(), deadline)
	defer cancel()
	c, err := cfg.Dial(ctx, "tcp", cfg.Addr)
	if err != nil {
		return "", brief("dial", err)
	}
	defer c.Close()
	if err := c.SetDeadline(deadline); err != nil {
		return "", brief("dial", err)
	}
	if _, err := fmt.Fprintf(c, "GET %s HTTP/1.1\r\nHost: %s\r\nConnection: close\r\n\r\n", cfg.Path, cfg.Addr); err != nil {
		return "", brief("write", err)
	}
	resp, err := http.ReadResponse(bufio.NewReader(c), nil)
	if err != nil {
		return "", brief("read", err)
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(io.LimitReader(resp.Body, 1<<20))
	if err != nil {
		return "", brief("read", err)
	}
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	return strings.TrimSpace(string(data)), nil
}

// brief is an error without the addresses, which differ in each connection.
func brief(what string, err error) error {
	if op := new(net.OpError); errors.As(err, &op) {
		err = op.Err
	}
	return fmt.Errorf("%s: %w", what, err)
}
