// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/internal/history"
)

var (
	historyKills = flag.Int("history-kills", 3, "leaders killed by TestHistory")
	historyOps   = flag.Int("history-operations", 2000, "least number of operations of TestHistory")
)

// historyKeys are the names that the clients contend for.
const historyKeys = 24

// Writes of several clients to all managers, while one leader after the other
// is killed: none acknowledged is lost, none takes place twice, none refused
// takes place at all (cases/store.md, store-2).
func TestHistory(t *testing.T) {
	t.Parallel()
	s := newSite(t, 3)
	s.join(1, "manager")
	s.join(2, "manager")
	w := &writers{t: t, site: s, begun: time.Now()}
	for _, d := range s.nodes {
		w.http = append(w.http, unixClient(d.sock, time.Minute))
	}
	const clients = 8
	var wg sync.WaitGroup
	for i := range clients {
		wg.Go(func() { w.client(i) })
	}
	over := sync.OnceFunc(func() { w.stop.Store(true); wg.Wait() })
	defer over()

	var elections []time.Duration
	for kill := range *historyKills {
		w.progress(*historyOps / (2 * *historyKills))
		leader := s.leader(-1)
		killed := time.Now()
		s.nodes[leader].kill()
		next := s.leader(leader)
		elections = append(elections, time.Since(killed).Round(10*time.Millisecond))
		w.progress(*historyOps / (4 * *historyKills))
		s.nodes[leader].start()
		t.Logf("kill %d: node %d, then node %d leads after %v", kill, leader, next, elections[kill])
	}
	for w.count.Load() < int64(*historyOps) {
		w.progress(100)
	}
	over()
	last := w.settle()
	ops := w.ops
	counts := map[string]int{}
	for _, o := range ops {
		counts[o.Kind.String()+" "+o.Outcome.String()]++
	}
	t.Logf("%d operations in %v, %d of them writes: %v; elections %v", len(ops), time.Since(w.begun).Round(time.Second),
		len(ops)-counts["read done"], counts, elections)
	for _, e := range elections {
		if e > *electionBound {
			t.Errorf("a new leader after %v", e)
		}
	}
	for name, err := range map[string]error{
		"linearizable": history.Linearizable(ops, last), "sessions": history.Sessions(ops), "accounts": history.Accounts(ops, last),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if counts["create done"] < 50 || counts["swap done"] < *historyOps/8 || counts["delete done"] < 20 {
		t.Errorf("too few writes to tell: %v", counts)
	}
}

// writers are clients of all managers, and what they did.
type writers struct {
	t     *testing.T
	site  *site
	http  []*http.Client
	begun time.Time
	stop  atomic.Bool
	count atomic.Int64 // of ops that were answered
	words atomic.Int64

	mu  sync.Mutex
	ops []history.Op
}

// progress waits until so many more operations are done.
func (w *writers) progress(n int) {
	w.t.Helper()
	until := w.count.Load() + int64(n)
	eventually(w.t, 3*time.Minute, fmt.Sprintf("%d more operations", n), func() bool { return w.count.Load() >= until })
}

// call is one request to one manager; text is what an error says.
func (w *writers) call(ctx context.Context, manager int, method, path string, in, out any) (status int, text string, err error) {
	var body io.Reader
	if in != nil {
		data, err := json.Marshal(in)
		if err != nil {
			return 0, "", err
		}
		body = bytes.NewReader(data)
	}
	req, err := http.NewRequestWithContext(ctx, method, "http://satl/v1.47"+path, body)
	if err != nil {
		return 0, "", err
	}
	req.Header.Set("Content-Type", "application/json")
	resp, err := w.http[manager].Do(req)
	if err != nil {
		return 0, "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err != nil {
		return 0, "", err
	}
	if resp.StatusCode >= 400 {
		return resp.StatusCode, strings.TrimSpace(string(data)), nil
	}
	if out != nil {
		err = json.Unmarshal(data, out)
	}
	return resp.StatusCode, "", err
}

// client makes one request after the other: it reads a service through some
// manager and writes on what it read, through the same or another.
func (w *writers) client(id int) {
	random := rand.New(rand.NewPCG(uint64(id), uint64(w.begun.UnixNano())))
	for !w.stop.Load() {
		key := fmt.Sprintf("key%d", random.IntN(historyKeys))
		at := random.IntN(len(w.site.nodes))
		read := w.do(history.Op{Client: id, Manager: at, Kind: history.Read, Key: key})
		if read.Outcome != history.Done {
			time.Sleep(10 * time.Millisecond) // that manager is down
			continue
		}
		if random.IntN(4) == 0 {
			at = random.IntN(len(w.site.nodes))
		}
		op := history.Op{Client: id, Manager: at, Key: key}
		word := fmt.Sprintf("w%d", w.words.Add(1))
		switch {
		case read.Seen == nil:
			op.Kind, op.Born = history.Create, word
		case random.IntN(8) == 0:
			op.Kind, op.Born = history.Delete, read.Seen.Born
		default:
			op.Kind, op.Born = history.Swap, read.Seen.Born
			op.From, op.To, op.Version = read.Seen.Value, word, read.Seen.Version
		}
		op.Seen = read.Seen
		w.do(op)
	}
}

// do makes a request and writes down what became of it; one that could not
// even be made leaves no trace.
func (w *writers) do(op history.Op) history.Op {
	on := op.Seen // what a write is made on
	op.Seen = nil
	ctx, cancel := context.WithTimeout(context.Background(), 45*time.Second)
	defer cancel()
	var seen swarm.Service
	op.Call = time.Since(w.begun)
	var status int
	var err error
	switch op.Kind {
	case history.Read:
		status, op.Text, err = w.call(ctx, op.Manager, http.MethodGet, "/services/"+op.Key, nil, &seen)
	case history.Create:
		status, op.Text, err = w.call(ctx, op.Manager, http.MethodPost, "/services/create", spec(op.Key, op.Born, op.Born), nil)
	case history.Swap:
		status, op.Text, err = w.call(ctx, op.Manager, http.MethodPost, fmt.Sprintf("/services/%s/update?version=%d", on.ID, op.Version), spec(op.Key, op.Born, op.To), nil)
	case history.Delete:
		status, op.Text, err = w.call(ctx, op.Manager, http.MethodDelete, "/services/"+on.ID, nil, nil)
	}
	op.Return = time.Since(w.begun)
	if dial := new(net.OpError); errors.As(err, &dial) && dial.Op == "dial" {
		op.Outcome = history.Refused
		return op
	}
	op.Outcome = w.outcome(op, status, err)
	if err != nil {
		op.Text = err.Error()
	}
	op.Gone = status == http.StatusNotFound
	if op.Kind == history.Read {
		switch {
		case op.Gone:
			op.Outcome = history.Done
		case op.Outcome == history.Done:
			op.Seen = &history.Seen{ID: seen.ID, Born: seen.Spec.Labels["born"], Value: seen.Spec.Labels["value"],
				Version: seen.Version.Index, Created: seen.CreatedAt}
		default:
			return op // no answer is no operation
		}
	}
	w.mu.Lock()
	w.ops = append(w.ops, op)
	w.mu.Unlock()
	w.count.Add(1)
	return op
}

// spec is a service without tasks that says what it is by its labels.
func spec(name, born, value string) swarm.ServiceSpec {
	none := uint64(0)
	return swarm.ServiceSpec{
		Annotations:  swarm.Annotations{Name: name, Labels: map[string]string{"born": born, "value": value}},
		TaskTemplate: swarm.TaskSpec{ContainerSpec: &swarm.ContainerSpec{Image: "app:1"}},
		Mode:         swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &none}},
	}
}

// nothingWritten are the words of a 503 that promise that the write does not
// take place, and unknownWords those of one that promises nothing.
var nothingWritten = []string{
	"this node does not lead the cluster", "an earlier write is still undecided", "the store changed meanwhile",
	"the cluster has no leader at the moment", "the cluster store is not loaded yet", "nothing can be changed at the moment", "nothing was written",
}

const unknownWords = "it is not known whether the write takes place"

// outcome is what an answer says. One that says nothing clear fails the test.
func (w *writers) outcome(op history.Op, status int, err error) history.Outcome {
	switch {
	case err != nil:
		return history.Unknown // the manager died under it
	case status < 300:
		return history.Done
	case status == http.StatusServiceUnavailable && strings.Contains(op.Text, unknownWords):
		return history.Unknown
	case status == http.StatusServiceUnavailable && slices.ContainsFunc(nothingWritten, func(s string) bool { return strings.Contains(op.Text, s) }):
		return history.Refused
	case status == http.StatusNotFound, status == http.StatusConflict,
		status == http.StatusInternalServerError && strings.Contains(op.Text, "update out of sequence"): // Docker's status
		return history.Refused
	}
	w.t.Errorf("an answer that does not say what became of it: %d: %s", status, op)
	return history.Unknown
}

// settle waits until all managers show the same, and all that was acknowledged,
// and returns it as reads at the end.
func (w *writers) settle() (last []history.Op) {
	w.t.Helper()
	// What an earlier leader left is decided once a write of today is.
	eventually(w.t, time.Minute, "one more write", func() bool {
		status, _, err := w.call(context.Background(), 0, http.MethodPost, "/services/create", spec("barrier", "barrier", "barrier"), nil)
		return err == nil && (status < 300 || status == http.StatusConflict)
	})
	begun := time.Since(w.begun)
	var shown []byte
	eventually(w.t, time.Minute, "all managers show the same", func() bool {
		var all [][]byte
		for i := range w.site.nodes {
			var list []swarm.Service
			status, _, err := w.call(context.Background(), i, http.MethodGet, "/services", nil, &list)
			if err != nil || status >= 300 || !slices.ContainsFunc(list, func(s swarm.Service) bool { return s.Spec.Name == "barrier" }) {
				return false
			}
			data, err := json.Marshal(list)
			if err != nil {
				return false
			}
			all = append(all, data)
		}
		shown = all[0]
		return bytes.Equal(all[0], all[1]) && bytes.Equal(all[1], all[2])
	})
	var list []swarm.Service
	if err := json.Unmarshal(shown, &list); err != nil {
		w.t.Fatal(err)
	}
	names := map[string]history.Op{}
	for i := range historyKeys {
		names[fmt.Sprintf("key%d", i)] = history.Op{}
	}
	ids := map[string]bool{}
	for _, x := range list {
		if _, ours := names[x.Spec.Name]; !ours {
			continue
		}
		if names[x.Spec.Name].Seen != nil || ids[x.ID] {
			w.t.Errorf("%s is there twice: %s", x.Spec.Name, shown)
		}
		ids[x.ID] = true
		names[x.Spec.Name] = history.Op{Seen: &history.Seen{ID: x.ID, Born: x.Spec.Labels["born"], Value: x.Spec.Labels["value"],
			Version: x.Version.Index, Created: x.CreatedAt}}
	}
	for key, o := range names {
		o.Kind, o.Key, o.Client, o.Call, o.Return = history.Read, key, -1, begun, time.Since(w.begun)
		last = append(last, o)
	}
	return last
}
