// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/docker/docker/pkg/jsonmessage"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/manager/state/store"

	"satld/executor"
	"satld/jail"
)

// logPoll is how often a followed service is looked at for new tasks, should
// the event that tells of one be missed.
const logPoll = time.Second

// logSelection is whose logs are asked for.
type logSelection struct {
	match    func(executor.Snapshot) bool
	selector *api.LogSelector // the same, to other nodes
	// over tells whether no new container can match any more, so that
	// following ends with those that are followed.
	over func() bool
	tty  bool
}

func (s *Server) serviceLogs(w http.ResponseWriter, r *http.Request) error {
	if err := s.mustManage(); err != nil {
		return err
	}
	svc, err := s.findService(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	container := svc.Spec.Task.GetContainer()
	if container == nil {
		return errInvalid("logs only supported on container tasks")
	}
	return s.writeTaskLogs(w, r, logSelection{
		match:    func(c executor.Snapshot) bool { return c.ServiceID == svc.ID },
		selector: &api.LogSelector{ServiceIDs: []string{svc.ID}},
		over: func() (gone bool) {
			s.cfg.Cluster.Store().View(func(tx store.ReadTx) { gone = store.GetService(tx, svc.ID) == nil })
			return gone
		},
		tty: container.TTY,
	})
}

func (s *Server) taskLogs(w http.ResponseWriter, r *http.Request) error {
	if err := s.mustManage(); err != nil {
		return err
	}
	t, err := s.findTask(r.Context(), pathVar(r, "id"))
	if err != nil {
		return err
	}
	container := t.Spec.GetContainer()
	if container == nil {
		return errInvalid("logs only supported on container tasks")
	}
	return s.writeTaskLogs(w, r, logSelection{
		match:    func(c executor.Snapshot) bool { return c.TaskID == t.ID },
		selector: &api.LogSelector{TaskIDs: []string{t.ID}},
		over: func() (over bool) {
			s.cfg.Cluster.Store().View(func(tx store.ReadTx) {
				now := store.GetTask(tx, t.ID)
				over = now == nil || now.Status.State > api.TaskStateRunning
			})
			return over
		},
		tty: container.TTY,
	})
}

// writeTaskLogs streams the logs of the tasks that sel names. Those of this
// node are in the order of time, those of others come in between as they do.
func (s *Server) writeTaskLogs(w http.ResponseWriter, r *http.Request, sel logSelection) error {
	o, err := readLogOptions(r, time.Now())
	if err != nil {
		return err
	}
	if tail := r.URL.Query().Get("tail"); tail != "" && tail != "all" {
		if n, err := strconv.Atoi(tail); err != nil || n < 0 {
			return errInvalid(`tail value must be a positive integer or "all"`)
		}
	}
	w.Header().Set("Content-Type", streamType(r, sel.tty))
	w.WriteHeader(http.StatusOK)
	ctx, cancel := context.WithCancel(r.Context())
	l := &taskLogWriter{s: s, sel: sel, options: o, out: newLogWriter(w, o, !sel.tty), cancel: cancel}
	l.out.flush()
	defer l.wg.Wait()
	if l.others() && (o.query.Follow || o.query.Tail != 0) {
		l.wg.Go(func() { l.elsewhere(ctx) })
	}
	if o.query.Follow {
		defer cancel()
		l.follow(ctx)
		return nil
	}
	l.merge(ctx)
	l.wg.Wait()
	cancel()
	if len(l.missing) > 0 {
		l.out.fail(errors.Join(l.missing...))
	}
	return nil
}

// taskLogWriter writes the lines of several containers into one answer.
type taskLogWriter struct {
	s       *Server
	sel     logSelection
	options logOptions
	cancel  context.CancelFunc
	wg      sync.WaitGroup

	mu      sync.Mutex // guards out and missing
	out     *logWriter
	missing []error // what is not in the answer, and why
}

// broken says what is missing: at the end of what there is, as a client reads no
// further. What is followed has none.
func (l *taskLogWriter) broken(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.options.query.Follow {
		l.out.fail(err)
		return
	}
	l.missing = append(l.missing, err)
}

// taskLine is a line and whose it is.
type taskLine struct {
	jail.LogLine
	from executor.Snapshot
}

// containers lists the containers whose logs are asked for, in the order of
// their creation.
func (l *taskLogWriter) containers() []executor.Snapshot {
	list := slices.DeleteFunc(slices.Clone(l.s.cfg.Containers.List()), func(c executor.Snapshot) bool { return !l.sel.match(c) })
	slices.SortFunc(list, func(a, b executor.Snapshot) int { return a.Created.Compare(b.Created) })
	return list
}

// merge writes what was logged so far, in the order of time.
func (l *taskLogWriter) merge(ctx context.Context) {
	if l.options.query.Tail == 0 {
		return
	}
	var sources []<-chan taskLine
	for _, c := range l.containers() {
		lines := make(chan taskLine, 64)
		sources = append(sources, lines)
		l.wg.Go(func() {
			defer close(lines)
			l.read(ctx, c, l.options.query, func(line taskLine) error {
				select {
				case lines <- line:
					return nil
				case <-ctx.Done():
					return ctx.Err()
				}
			})
		})
	}
	heads := make([]*taskLine, len(sources))
	for {
		first := -1
		for i, source := range sources {
			if source != nil && heads[i] == nil {
				if line, ok := <-source; ok {
					heads[i] = &line
				} else {
					sources[i] = nil
				}
			}
			if heads[i] != nil && (first < 0 || heads[i].Time.Before(heads[first].Time)) {
				first = i
			}
		}
		if first < 0 {
			break
		}
		if err := l.write(*heads[first], false); err != nil {
			l.cancel()
			return
		}
		heads[first] = nil
	}
	l.out.flush()
}

// follow writes lines as they come, also of tasks that start later.
func (l *taskLogWriter) follow(ctx context.Context) {
	_, events, unsubscribe := l.s.cfg.Events.Subscribe(time.Time{})
	defer unsubscribe()
	tick := time.NewTicker(logPoll)
	defer tick.Stop()
	seen := make(map[string]bool)
	running := 0
	ended := make(chan struct{})
	query := l.options.query
	if query.Tail == 0 { // nothing of what was logged so far
		query.Since, query.Tail = laterOf(query.Since, time.Now()), -1
	}
	for {
		over := l.sel.over()
		for _, c := range l.containers() {
			if seen[c.ID] {
				continue
			}
			seen[c.ID] = true
			running++
			q := query
			l.wg.Go(func() {
				l.read(ctx, c, q, func(line taskLine) error { return l.write(line, true) })
				select {
				case ended <- struct{}{}:
				case <-ctx.Done():
				}
			})
		}
		query.Tail = -1 // a task that starts now is shown from its first line
		if over && running == 0 {
			return
		}
		select {
		case <-ctx.Done():
			return
		case <-ended:
			running--
		case _, open := <-events:
			if !open {
				events = nil // the ticker goes on
			}
		case <-tick.C:
		}
	}
}

func laterOf(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}

// read passes on the lines of one container; what goes wrong is told in the
// stream, for the status was sent long ago.
func (l *taskLogWriter) read(ctx context.Context, c executor.Snapshot, q jail.LogQuery, each func(taskLine) error) {
	err := l.s.cfg.Containers.Logs(ctx, c.ID, q, func(line jail.LogLine) error { return each(taskLine{line, c}) })
	if err == nil || ctx.Err() != nil {
		return
	}
	l.s.log.Warn("logs broken off", "task_id", c.TaskID, "error", err)
	l.broken(fmt.Errorf("task %s: %w", c.TaskID, err))
}

// write renders one line. Each part of a long line is a message of its own,
// because the CLI reads whose it is from each message.
func (l *taskLogWriter) write(line taskLine, flush bool) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	b := &l.out.line
	b.Reset()
	if l.options.timestamps {
		b.WriteString(line.Time.UTC().Format(jsonmessage.RFC3339NanoFixed))
		b.WriteByte(' ')
	}
	if l.options.details {
		b.WriteString(logDetails(line.from))
		b.WriteByte(' ')
	}
	b.Write(line.Line)
	out := l.out.stdout
	if line.Stream == "stderr" {
		out = l.out.stderr
	}
	_, err := out.Write(b.Bytes())
	if err != nil {
		l.cancel()
		return errors.Join(context.Canceled, err)
	}
	if flush {
		l.out.flush()
	}
	return nil
}

// logDetails tells whose a line is, as the CLI reads it.
func logDetails(c executor.Snapshot) string {
	return strings.Join([]string{
		"com.docker.swarm.node.id=" + url.QueryEscape(c.NodeID),
		"com.docker.swarm.service.id=" + url.QueryEscape(c.ServiceID),
		"com.docker.swarm.task.id=" + url.QueryEscape(c.TaskID),
	}, ",")
}
