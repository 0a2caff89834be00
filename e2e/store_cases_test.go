// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/moby/swarmkit/v2/api"

	"satld/internal/slowday"
)

// The cases of cases/store.md that take a whole daemon; the others are in
// packages raft, cluster, orchestrator and api, by name.

// TestStore1: a probe that says something else each time writes nothing to the
// store; a task that turns unhealthy is one entry, with what that probe said;
// the first result is shown at once (cases/store.md, store-1; TestManyProbes
// is the same with many).
func TestStore1(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	ctl := controls(t)
	const words = "the last words: 42"
	d.create("web", shell(`date +%s%N; [ ! -e /ctl/bad ] || { echo the last words: $((40+2)); exit 1; }`, timing(time.Second, 5*time.Second, 1)), control(ctl))
	eventually(t, 30*time.Second, "it runs", func() bool { return len(d.running("web")) == 1 })
	first := d.running("web")[0].Status.ContainerStatus.ContainerID
	c := d.awaitProbes(10*time.Second, first, 1)
	if late := time.Since(c.State.Health.Log[0].End); late > slowday.Of(time.Second) && len(c.State.Health.Log) == 1 {
		t.Errorf("the first result was shown %v after it", late)
	}
	db := filepath.Join(d.state, "raft", "raft.db")
	eventually(t, 20*time.Second, "store at rest", func() bool {
		before := written(t, db)
		time.Sleep(1500 * time.Millisecond)
		return written(t, db) == before
	})
	at := written(t, db)
	c = d.awaitProbes(10*time.Second, first, 1)
	begun := c.State.Health.Log[len(c.State.Health.Log)-1].End
	d.await(20*time.Second, first, "probed five times more, each with words of its own", func(c container.InspectResponse) bool {
		said := map[string]bool{}
		for _, r := range c.State.Health.Log {
			if r.Start.After(begun) {
				said[r.Output] = true
			}
		}
		return len(said) == 5
	})
	if now := written(t, db); now != at {
		t.Errorf("probing wrote to the store")
	}
	touch(t, ctl, "bad")
	failed := d.awaitTask(20*time.Second, "web", "failed", failed)
	if !strings.Contains(failed.Status.Err, words) {
		t.Errorf("the error is %q", failed.Status.Err)
	}
	d.awaitTask(20*time.Second, "web", "decided upon", func(x task) bool { return x.ID == failed.ID && x.DesiredState != "running" })
	d.kill()
	// What the node reports is one entry; what is decided of it, here not to
	// replace the task, is another, with the whole task in it again. A node may
	// repeat its report, with nothing new in it.
	reports, decisions, seen, known := 0, 0, "", map[string]bool{}
	for _, e := range entries(t, db) {
		for _, x := range e.tasks {
			says := fmt.Sprint(x.DesiredState, x.Status.State, x.Status.Err, x.Annotations)
			switch {
			case !strings.Contains(x.Status.Err, words), known[says]:
				continue
			case x.DesiredState == api.TaskStateRunning:
				reports++
			default:
				decisions++
			}
			seen, known[says] = seen+fmt.Sprintf("%v\n", x), true
		}
	}
	if reports != 1 || decisions != 1 {
		t.Errorf("%d entries of the failure and %d of what follows:\n%s", reports, decisions, seen)
	}
	d.start()
}

// TestStore4: a daemon whose store is damaged ends with the name of the file
// and what to do, and touches no container; with a good copy in its place it
// goes on with them (cases/store.md, store-4).
func TestStore4(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.create("web", shell("true"))
	c := d.awaitHealth(20*time.Second, "web", "healthy")
	d.kill()
	db := filepath.Join(d.state, "raft", "raft.db")
	good, err := os.ReadFile(db)
	if err != nil {
		t.Fatal(err)
	}
	page := os.Getpagesize()
	for what, bad := range map[string][]byte{
		"both meta pages garbled": slices.Concat(bytes.Repeat([]byte("bad "), page/2), good[2*page:]),
		"cut short":               good[:len(good)/2],
	} {
		if err := os.WriteFile(db, bad, 0o600); err != nil {
			t.Fatal(err)
		}
		out, err := exec.Command(filepath.Join(bin, "satld"), d.flags()...).CombinedOutput()
		exit, ok := err.(*exec.ExitError)
		if !ok || exit.ExitCode() != 1 || !strings.Contains(string(out), "satld: "+db+" is damaged") ||
			!strings.Contains(string(out), "--force-new-cluster") || strings.Contains(string(out), "panic") {
			t.Errorf("%s: %v %s", what, err, out)
		}
		if data, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(c.State.Pid), "cmdline")); err != nil || len(data) == 0 {
			t.Fatalf("%s: the container is gone: %v", what, err)
		}
	}
	if err := os.WriteFile(db, good, 0o600); err != nil {
		t.Fatal(err)
	}
	d.start()
	if now := d.awaitHealth(20*time.Second, c.ID, "healthy"); now.State.Pid != c.State.Pid {
		t.Errorf("pid %d, was %d", now.State.Pid, c.State.Pid)
	}
}
