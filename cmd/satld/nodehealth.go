// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"fmt"
	"time"

	"github.com/spf13/pflag"

	"satld/mesh"
)

// NodeHealth is how the other nodes of the cluster are watched: the table
// node_health of the file, with the keys of spec/application-health.txt. On
// the command line each key follows "--node-health-".
type NodeHealth struct {
	Enabled          bool     `toml:"enabled"`
	Interval         duration `toml:"interval"`
	Timeout          duration `toml:"timeout"`
	Concurrency      int      `toml:"concurrency"`
	FailureThreshold int      `toml:"failure_threshold"`
}

// duration is one as Go writes it, "5s", in the file too.
type duration time.Duration

// UnmarshalText implements encoding.TextUnmarshaler.
func (d *duration) UnmarshalText(text []byte) error {
	parsed, err := time.ParseDuration(string(text))
	if err == nil {
		*d = duration(parsed)
	}
	return err
}

func defaultNodeHealth() NodeHealth {
	s := mesh.DefaultSettings()
	return NodeHealth{s.Enabled, duration(s.Interval), duration(s.Timeout), s.Concurrency, s.FailureThreshold}
}

func (n NodeHealth) settings() mesh.Settings {
	return mesh.Settings{
		Enabled: n.Enabled, Interval: time.Duration(n.Interval), Timeout: time.Duration(n.Timeout),
		Concurrency: n.Concurrency, FailureThreshold: n.FailureThreshold,
	}
}

func (n *NodeHealth) register(f *pflag.FlagSet) {
	f.BoolVar(&n.Enabled, "node-health-enabled", n.Enabled, "send traffic to tasks of other nodes by what these say of them; false: to all that run")
	f.DurationVar((*time.Duration)(&n.Interval), "node-health-interval", time.Duration(n.Interval), "`time` between two questions to another node who serves there")
	f.DurationVar((*time.Duration)(&n.Timeout), "node-health-timeout", time.Duration(n.Timeout), "`time` that it has to answer in")
	f.IntVar(&n.Concurrency, "node-health-concurrency", n.Concurrency, "`number` of nodes that are asked at once")
	f.IntVar(&n.FailureThreshold, "node-health-failure-threshold", n.FailureThreshold, "`number` of questions without an answer after which a node's tasks get no traffic")
}

// check says what cannot work, naming the flag.
func (n NodeHealth) check() error {
	bad := func(flag string, value any, why string) error {
		return usageError{fmt.Errorf("--node-health-%s %v: %s", flag, value, why)}
	}
	const longest = time.Hour
	switch interval, timeout := time.Duration(n.Interval), time.Duration(n.Timeout); {
	case interval < 100*time.Millisecond || interval > longest:
		return bad("interval", interval, "must be from 100ms to 1h")
	case timeout < 10*time.Millisecond || timeout > longest:
		return bad("timeout", timeout, "must be from 10ms to 1h")
	case n.Concurrency < 1:
		return bad("concurrency", n.Concurrency, "must be 1 or more")
	case n.FailureThreshold < 1:
		return bad("failure-threshold", n.FailureThreshold, "must be 1 or more")
	}
	return nil
}

// warning is what an operator has to know of these settings, "" mostly.
func (n NodeHealth) warning() string {
	if n.Enabled {
		return ""
	}
	return "health gating of other nodes is off (node_health.enabled = false): all tasks that run there are sent traffic"
}
