// SPDX-License-Identifier: BSD-2-Clause

package mesh

import (
	"context"
	"log/slog"
	"maps"
	"sync"
	"time"

	"satld/traffic"
)

// View is what is known of the other nodes and their tasks, out of the store
// or out of a manager's directory.
type View struct {
	Nodes []Node
	Tasks []Task
}

// Observer watches the other nodes and keeps what to send where.
type Observer struct {
	Settings Settings
	// View gives the view; changed is closed when it may have changed.
	View func() (v View, changed <-chan struct{})
	// Ask asks a node for its report.
	Ask func(ctx context.Context, n Node) (Report, error)
	// Members is given the members of the other nodes, whole, at each change,
	// and what each node said last.
	Members func(members []traffic.Member, said map[string]Report)
	Log     *slog.Logger

	once sync.Once
	told chan told
	mu   sync.Mutex
	now  map[string]Verdict // by task ID
}

type told struct {
	node   string
	report Report
}

// told is made by whoever comes first.
func (o *Observer) init() { o.once.Do(func() { o.told = make(chan told) }) }

// Told takes in what a node says of itself.
func (o *Observer) Told(ctx context.Context, node string, r Report) error {
	o.init()
	select {
	case o.told <- told{node, r}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Verdict is what is known of a task of another node; "" of any other.
func (o *Observer) Verdict(taskID string) Verdict {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.now[taskID]
}

// answer is what became of a question.
type answer struct {
	node   string
	report Report
	err    error
}

// Run observes until ctx is done. It is the only one to touch what is known.
func (o *Observer) Run(ctx context.Context) error {
	o.init()
	known := make(map[string]observation)
	asking := make(map[string]bool)
	answers := make(chan answer)
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		view, changed := o.View()
		for _, n := range view.Nodes {
			if k := known[n.ID].hearsay(n.Said); !n.Down && k.known() {
				known[n.ID] = k
			}
		}
		forgetEnded(known, view.Tasks)
		o.publish(view, known)
		wait := o.ask(ctx, view, known, asking, answers)
		timer.Reset(wait)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
		case <-timer.C:
		case t := <-o.told:
			known[t.node] = known[t.node].hear(t.report)
		case a := <-answers:
			delete(asking, a.node)
			k := known[a.node]
			if a.err == nil {
				k = k.hear(a.report)
			} else if k.misses++; k.misses == o.Settings.FailureThreshold {
				o.Log.Warn("a node does not answer: its tasks get no traffic from here", "node", a.node, "misses", k.misses, "error", a.err)
			}
			known[a.node] = k
		}
	}
}

// forgetEnded drops of the tasks that have ended those that the store has no
// more. Mostly none has ended, and nothing is looked at.
func forgetEnded(known map[string]observation, tasks []Task) {
	var there map[string]bool
	for id, k := range known {
		if len(k.ended) == 0 {
			continue
		}
		if there == nil {
			there = make(map[string]bool, len(tasks))
			for _, t := range tasks {
				there[t.Member.TaskID] = true
			}
		}
		known[id] = k.forget(there)
	}
}

// ask sends the questions that are due and tells when the next one is.
func (o *Observer) ask(ctx context.Context, view View, known map[string]observation, asking map[string]bool, answers chan<- answer) time.Duration {
	wait := o.Settings.Interval
	here := make(map[string]bool, len(view.Nodes))
	now := time.Now()
	for _, n := range view.Nodes {
		here[n.ID] = true
		if n.Down {
			// What it said is of before; it begins anew when it is back.
			delete(known, n.ID)
			continue
		}
		if !o.Settings.Enabled || asking[n.ID] || n.Addr == "" {
			continue
		}
		if due := known[n.ID].asked.Add(o.Settings.Interval); due.After(now) {
			wait = min(wait, due.Sub(now))
			continue
		}
		if len(asking) >= o.Settings.Concurrency {
			continue // the next answer brings us here again
		}
		k := known[n.ID]
		k.asked = now
		known[n.ID] = k
		asking[n.ID] = true
		go func() {
			bounded, cancel := context.WithTimeout(ctx, o.Settings.Timeout)
			defer cancel()
			r, err := o.Ask(bounded, n)
			select {
			case answers <- answer{n.ID, r, err}:
			case <-ctx.Done():
			}
		}()
	}
	maps.DeleteFunc(known, func(id string, _ observation) bool { return !here[id] })
	return wait
}

// publish judges every task anew and hands the members on.
func (o *Observer) publish(view View, known map[string]observation) {
	nodes := make(map[string]Node, len(view.Nodes))
	for _, n := range view.Nodes {
		nodes[n.ID] = n
	}
	verdicts := make(map[string]Verdict, len(view.Tasks))
	members := make([]traffic.Member, 0, len(view.Tasks))
	for _, t := range view.Tasks {
		n, there := nodes[t.NodeID]
		if !there {
			n.Down = true
		}
		m, v := judge(o.Settings, n, known[t.NodeID], t)
		verdicts[t.Member.TaskID] = v
		members = append(members, m)
	}
	o.mu.Lock()
	o.now = verdicts
	o.mu.Unlock()
	said := make(map[string]Report, len(known))
	for id, k := range known {
		said[id] = k.report
	}
	o.Members(members, said)
}
