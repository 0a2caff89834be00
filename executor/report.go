// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	cerrdefs "github.com/containerd/errdefs"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	"satld/healthcheck"
	"satld/jail"
	"satld/platform/atomicfile"
)

// Report is what a task that failed its deploy leaves, collected before it is
// removed (spec/deploy-check.txt, "The evidence a failed check keeps").
type Report struct {
	State  string                `json:"state"`  // "failed"
	Step   string                `json:"step"`   // where the deploy stopped
	Name   string                `json:"name"`   // of the failure: step and "_failed"
	Detail string                `json:"detail"` // opens with the likely cause and its remedy; no address, credential or host
	Gate   *healthcheck.Evidence `json:"gate,omitempty"`
}

// The steps of a deploy on a node.
const (
	stepImage = "image_pull"    // the image is made available
	stepApply = "compute_apply" // the task is made and started
	stepGate  = "health_gate"   // it proves itself
)

const (
	// consoleBound is how long the end of a task's output may take to read;
	// the task's stop waits for it.
	consoleBound = time.Second
	// keepFor is how long a report is offered to the leader, keepBound how
	// long one offer may take, keepEvery the time between two.
	keepFor   = time.Minute
	keepBound = 5 * time.Second
	keepEvery = 2 * time.Second
)

// reportFailure collects why a task's deploy failed, and hands it to the
// leader in the background. step "" is the health gate. A task that passed
// and is in no rollout, or that was to stop, has not failed a deploy.
func (n *Node) reportFailure(c *Container, step string) {
	rec := c.record()
	if n.cfg.Leader == nil || rec.TaskID == "" || rec.Proved && !rec.InRollout {
		return
	}
	e := healthcheck.Evidence{ProbeSequence: []healthcheck.Run{}, AnsweredBy: healthcheck.Unknown}
	if h := n.health(c); h != nil && h.Evidence.ProbeSequence != nil {
		e = h.Evidence
	}
	e.Compute = rec.compute()
	e.Console = n.console(rec)
	r := Report{State: "failed", Step: step, Detail: healthcheck.Detail(e), Gate: &e}
	switch _, probed := rec.settings(); {
	case step != "":
		r.Detail = "The task could not be started: the task's own error says why."
	case !rec.State.Live() && (rec.Proved || !probed):
		r.Step = stepApply
		r.Detail = fmt.Sprintf("The process ended with exit code %d while its rollout was watched: its console says why.", rec.ExitCode)
	default:
		r.Step = stepGate
	}
	r.Name = r.Step + "_failed"
	data, ok := n.encode(rec, r)
	if !ok {
		return
	}
	written := make(chan struct{})
	n.wg.Go(func() {
		defer close(written)
		if err := n.writeReport(c, data); err != nil {
			n.logger(rec).Warn("report of a failed task not written down", "err", err)
		}
	})
	n.wg.Go(func() { n.deliver(rec, data, written) })
}

// reportRefusal reports a task that never came to have a container.
func (n *Node) reportRefusal(taskID, step, detail string) {
	if n.cfg.Leader == nil {
		return
	}
	rec := Record{TaskID: taskID}
	if data, ok := n.encode(rec, Report{State: "failed", Step: step, Name: step + "_failed", Detail: detail}); ok {
		n.wg.Go(func() { n.deliver(rec, data, nil) })
	}
}

func (n *Node) encode(rec Record, r Report) (data []byte, ok bool) {
	log := n.logger(rec)
	data, err := json.Marshal(r)
	if err != nil {
		log.Error("report of a failed task not encoded", "err", err)
		return nil, false
	}
	log.Info("deploy of the task failed", "step", r.Step, "detail", r.Detail)
	return data, true
}

// compute is the state of the task when it failed.
func (r Record) compute() *healthcheck.Compute {
	c := &healthcheck.Compute{State: r.State.String(), OOMKilled: r.OOMKilled, Restarts: r.Restarts}
	if r.State == Exited {
		code := r.ExitCode
		c.ExitCode = &code
	}
	return c
}

// console is the end of the task's output, one line more than is kept being
// asked for so that it can be told whether any were cut.
func (n *Node) console(r Record) *healthcheck.Console {
	var lines []string
	whole := true
	err := n.bounded(consoleBound, func(ctx context.Context) error {
		q := jail.LogQuery{Stdout: true, Stderr: true, Tail: healthcheck.MaxConsoleLines + 1}
		return n.cfg.Runtime.Logs(ctx, r.runtimeID(), q, func(l jail.LogLine) error {
			if !whole {
				lines[len(lines)-1] += string(l.Line)
			} else {
				lines = append(lines, string(l.Line))
			}
			whole = !l.Partial
			return nil
		})
	})
	if cerrdefs.IsNotFound(err) {
		err = nil // it never ran
	}
	c := healthcheck.Tail(lines)
	if err != nil {
		n.logger(r).Warn("console of a failed task not read", "err", err)
		c.Note = "the console could not be read"
	}
	return c
}

// reportFile is where a report waits until the leader has it, so that a later
// daemon goes on with it; a power cut may lose it.
func (n *Node) reportFile(id string) string { return filepath.Join(n.dir, id, "report.json") }

func (n *Node) writeReport(c *Container, data []byte) error {
	defer c.lockFiles()()
	if c.erased {
		return nil
	}
	return atomicfile.Write(n.reportFile(c.id), data, fileMode)
}

// deliver offers a report to the leader until it is kept, cannot be, or its
// time is over. written is closed once it is written down here, or cannot be:
// the leader does not wait for that. It is nil of one that nobody writes down.
func (n *Node) deliver(rec Record, report []byte, written <-chan struct{}) {
	log := n.logger(rec)
	for begun := time.Now(); ; {
		err := boundedCtx(n.ctx, keepBound, func(ctx context.Context) error { return n.cfg.Leader.KeepReport(ctx, rec.TaskID, report) })
		switch {
		case err != nil && n.ctx.Err() != nil:
			return // the next daemon's
		case err != nil && !final(err) && time.Since(begun) < keepFor:
			n.sleep(keepEvery)
			continue
		case err != nil:
			log.Warn("report of a failed task is lost", "err", err)
		}
		break
	}
	if written == nil {
		return
	}
	<-written
	if err := os.Remove(n.reportFile(rec.ID)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		log.Warn("report of a failed task is left and will be handed over again", "err", err)
	}
}

// final tells an answer that does not change by asking again, as the leader
// gives it on this node or through another one.
func final(err error) bool {
	switch status.Code(err) {
	case codes.NotFound, codes.InvalidArgument, codes.PermissionDenied:
		return true
	}
	return cerrdefs.IsNotFound(err) || cerrdefs.IsInvalidArgument(err)
}

// resumeReport goes on with a report that an earlier daemon could not hand over.
func (n *Node) resumeReport(rec Record) {
	if n.cfg.Leader == nil {
		return
	}
	data, err := os.ReadFile(n.reportFile(rec.ID))
	if errors.Is(err, fs.ErrNotExist) {
		return
	}
	if err != nil {
		n.logger(rec).Warn("report of a failed task not read", "err", err)
		return
	}
	written := make(chan struct{})
	close(written)
	n.wg.Go(func() { n.deliver(rec, data, written) })
}
