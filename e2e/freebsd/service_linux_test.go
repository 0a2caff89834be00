// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/docker/docker/api/types/swarm"
)

const webTable = "satl_p8080_tcp_80"

// web makes the service that most tests are about: the test app behind a
// published port, with a probe that asks it for its health.
func (r *ring) web(args ...string) {
	r.t.Helper()
	r.webRuns(nil, args...)
}

// webRuns is web with a command of its own.
func (r *ring) webRuns(command []string, args ...string) {
	r.t.Helper()
	argv := []string{
		"service", "create", "--detach", "--no-resolve-image", "--name", "web", "--publish", "8080:80", "--stop-grace-period", "2s", "--restart-delay", "100ms",
		"--health-cmd", "/app -probe http://$(hostname)/health", "--health-start-period", "60s", "--health-interval", "300ms", "--health-timeout", "20s", "--health-retries", "2",
	}
	r.docker(slices.Concat(argv, args, []string{"app:1"}, command)...)
}

// stubborn is the app in a shell that does not end when it is asked to: it
// lives until its grace is over.
var stubborn = []string{"/bin/sh", "-c", "trap : TERM; /app & while :; do wait; done"}

// From `service create` to teardown: probes, pool, withdrawal, replacement,
// scaling, a daemon that is killed, and removal.
func TestService(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.web("--replicas", "2")
	first := r.awaitRunning("web", 2)
	r.awaitPool(webTable, r.addrsOf(first))
	for _, task := range first {
		jail := r.World().Jail(r.jailOf(task))
		if !jail.VNET || jail.Dying {
			t.Errorf("%+v", jail)
		}
	}

	// A stranger is redirected to a member, in turns.
	seen := make(map[netip.AddrPort]bool)
	for port := range uint16(4) {
		v := r.Packet("tcp", netip.AddrPortFrom(netip.MustParseAddr(stranger), 4000+port).String(), hostAddr+":8080")
		seen[v.Backend] = true
		if body, err := r.get("http://" + v.Backend.String() + "/"); err != nil || body == "" {
			t.Errorf("%v: %q, %v", v, body, err)
		}
	}
	if len(seen) != 2 {
		t.Errorf("packets go to %v", seen)
	}
	// And the host itself gets there too, by every address that it has.
	for _, url := range []string{"http://127.0.0.1:8080/", "http://" + hostAddr + ":8080/"} {
		r.until("an answer of "+url, func() bool { body, err := r.get(url); return err == nil && body != "" })
	}

	// The first one turns unhealthy: out of the pool before it is stopped.
	sick := first[0]
	sickAddr, sickJail := r.addrOf(sick), r.jailOf(sick)
	if _, err := r.get("http://" + sickAddr + "/bad"); err != nil {
		t.Fatal(err)
	}
	var failed swarm.Task
	r.until("its failure", func() bool {
		for _, task := range r.tasks("web") {
			if task.ID == sick.ID && task.Status.State == swarm.TaskStateFailed {
				failed = task
				return true
			}
		}
		return false
	})
	if !strings.Contains(failed.Status.Err, "unhealthy") {
		t.Errorf("failed with %q", failed.Status.Err)
	}
	now := r.awaitReplaced(sick, 2)
	r.awaitPool(webTable, r.addrsOf(now))
	if slices.Contains(r.pool(webTable), sickAddr) {
		t.Errorf("%s is in the pool", sickAddr)
	}
	r.outBeforeRemoval(sickAddr, sickJail)

	// Scaled up and down again.
	r.docker("service", "scale", "--detach", "web=3")
	r.awaitPool(webTable, r.addrsOf(r.awaitRunning("web", 3)))
	r.docker("service", "scale", "--detach", "web=1")
	kept := r.awaitRunning("web", 1)
	r.awaitPool(webTable, r.addrsOf(kept))

	// A daemon that dies without warning leaves all of it in place; the next
	// one takes over the same processes.
	jail := r.jailOf(kept[0])
	main := strconv.Itoa(kept[0].Status.ContainerStatus.PID)
	if pids := r.processesIn(jail); !slices.Contains(pids, main) {
		t.Fatalf("the jail has processes %v, and not %s", pids, main)
	}
	rules := r.dump()
	r.end(syscall.SIGKILL)
	if got := r.pool(webTable); len(got) != 1 {
		t.Errorf("the pool of a dead daemon: %v", got)
	}
	r.start()
	if again := r.awaitRunning("web", 1); again[0].ID != kept[0].ID {
		t.Errorf("task %s, want the adopted %s", again[0].ID, kept[0].ID)
	}
	if pids := r.processesIn(jail); !slices.Contains(pids, main) {
		t.Errorf("the jail has processes %v, and not the first, %s, any more", pids, main)
	}
	r.until("a probe of the adopted task", func() bool {
		return strings.Contains(r.docker("ps", "--format", "{{.Status}}"), "(healthy)")
	})
	if after := r.dump(); after != rules {
		t.Errorf("pf held:\n%s\nand holds:\n%s", rules, after)
	}
	if body, err := r.get("http://" + r.addrOf(kept[0]) + "/"); err != nil || body == "" {
		t.Errorf("%q, %v", body, err)
	}

	r.docker("service", "rm", "web")
	r.until("the end of all jails", func() bool { live, dying := r.Jails(); return len(live)+len(dying) == 0 })
	r.until("the end of the pool", func() bool { _, ok := r.Table(r.rdr(), webTable); return !ok })
}

// processesIn are the processes of a jail, probes of it among them, in no order
// that says which was the first.
func (r *ring) processesIn(jail string) []string {
	r.t.Helper()
	out, err := r.Run("ps", "-J", jail, "-o", "pid=")
	if err != nil {
		r.t.Fatalf("processes of jail %s: %q, %v", jail, out, err)
	}
	return strings.Fields(out)
}
