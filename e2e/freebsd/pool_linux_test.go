// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/internal/fakefreebsd"
	"satld/internal/fakefreebsd/world"
)

// from is the n-th socket of a stranger.
func from(n int) string { return fmt.Sprintf("%s:%d", stranger, 40000+n) }

// pool-1: a UDP flow is turned to whoever is in the pool now, within a second
// of each change, and no entry with the removed address is left.
func TestUDPFlowsFollowThePool(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.docker("service", "create", "--detach", "--no-resolve-image", "--name", "dns", "--publish", "5300:5300/udp", "--stop-grace-period", "2s",
		"app:1", "/app", "-udp", ":5300")
	send := func() string { return r.Packet("udp", from(0), hostAddr+":5300").Backend.Addr().String() }
	// Packets keep coming, as every one renews its entry.
	follows := func(what string, members []string, removed ...string) {
		t.Helper()
		r.awaitPool("satl_p5300_udp_5300", members)
		begin := time.Now()
		r.within(20*time.Second, what, func() bool {
			to := send()
			for _, addr := range removed {
				if to == addr || len(r.States(addr)) > 0 {
					return false
				}
			}
			return len(members) == 0 || slices.Contains(members, to)
		})
		t.Logf("%s: %v after the table's change", what, time.Since(begin).Round(time.Millisecond))
	}
	a := r.addrOf(r.awaitRunning("dns", 1)[0])
	follows("to the first", []string{a})
	r.docker("service", "scale", "--detach", "dns=0")
	follows("to nobody", nil, a)
	// The rule refuses it, or, once the port has gone with the last jail, the
	// host, where nobody listens.
	if v := r.Packet("udp", from(1), hostAddr+":5300"); v.Backend.IsValid() || v.Dropped {
		t.Errorf("%+v: with nobody there it is refused", v)
	}
	r.docker("service", "scale", "--detach", "dns=2")
	two := r.addrsOf(r.awaitRunning("dns", 2))
	follows("to two", two, a)
	r.within(20*time.Second, "the flow that came while nobody was there", func() bool {
		return slices.Contains(two, r.Packet("udp", from(1), hostAddr+":5300").Backend.Addr().String())
	})
	for n := range 6 { // flows to both of them
		r.Packet("udp", from(10+n), hostAddr+":5300")
	}
	r.docker("service", "scale", "--detach", "dns=1")
	left := r.addrOf(r.awaitRunning("dns", 1)[0])
	gone := two[0]
	if gone == left {
		gone = two[1]
	}
	follows("to the one that is left", []string{left}, gone)
	if len(r.States(left)) == 0 {
		t.Error("flows to the one that stayed were cut too")
	}
	r.docker("service", "rm", "dns")
	r.until("the end of its flows", func() bool { return len(r.States(left)) == 0 })
}

// redirects are the entries that send packets to a member: of the two that a
// flow has, the inbound one.
func (r *ring) redirects(addr string) []world.State {
	r.t.Helper()
	return slices.DeleteFunc(r.States(addr), func(s world.State) bool { return !s.Redirected() || !strings.HasPrefix(s.Backend, addr+":") })
}

// half counts the flows to a member.
func (r *ring) half(addr string) (halfOpen, established int) {
	r.t.Helper()
	for _, s := range r.redirects(addr) {
		if s.HalfOpen {
			halfOpen++
		} else {
			established++
		}
	}
	return halfOpen, established
}

// pool-2 and pool-9: a draining task keeps its established connections until
// its process is gone; half-open ones go at once; nobody else's are touched.
// States are killed after the table was replaced.
func TestDrainKeepsEstablishedConnections(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.webRuns(stubborn, "--replicas", "2", "--stop-grace-period", "8s")
	tasks := r.awaitRunning("web", 2)
	r.awaitPool(webTable, r.addrsOf(tasks))
	// Each member gets an established flow and a half-open one.
	for n := range 4 {
		r.Packet("tcp", from(n), hostAddr+":8080")
		if n < 2 {
			r.Packet("tcp", from(n), hostAddr+":8080")
		}
	}
	r.Packet("tcp", from(9), hostAddr+":22")
	r.Packet("tcp", from(9), hostAddr+":22")

	r.docker("service", "scale", "--detach", "web=1")
	var kept, leaving string
	r.until("one of two in the pool", func() bool {
		in := r.pool(webTable)
		if len(in) == 1 {
			kept = in[0]
		}
		return len(in) == 1
	})
	for _, a := range r.addrsOf(tasks) {
		if a != kept {
			leaving = a
		}
	}
	r.until("the end of half-open connections to "+leaving, func() bool { n, _ := r.half(leaving); return n == 0 })
	if _, n := r.half(leaving); n != 1 && r.jailsAre(2) {
		t.Errorf("%d established connections to a task that drains, want 1", n)
	}
	if half, established := r.half(kept); half != 1 || established != 1 {
		t.Errorf("%d half-open and %d established connections to the one that stays", half, established)
	}
	r.until("the end of the leaving task", func() bool { return r.jailsAre(1) })
	r.until("the end of its established connections", func() bool { return len(r.States(leaving)) == 0 })
	if half, established := r.half(kept); half != 1 || established != 1 {
		t.Errorf("%d half-open and %d established connections to the one that stays", half, established)
	}
	if !slices.ContainsFunc(r.States(""), func(s world.State) bool { return s.Dialled == hostAddr+":22" }) {
		t.Error("the operator's own session was cut")
	}
	r.killedAfterReplace()
}

func (r *ring) jailsAre(n int) bool {
	live, dying := r.Jails()
	return len(live)+len(dying) == n
}

// killedAfterReplace looks in the log of command lines that no state was killed
// before the table had changed (pool-9).
func (r *ring) killedAfterReplace() {
	r.t.Helper()
	replaced := 0
	for i, c := range r.Calls() {
		line := c.String()
		if strings.Contains(line, "-t "+webTable+" -T replace") {
			replaced++
		}
		if strings.HasPrefix(line, "pfctl -k ") && replaced < 2 { // the first one brought the members in
			r.t.Errorf("call %d, %s, before the member was out of the table", i, line)
		}
	}
}

// pool-2, the other half: an unhealthy task's established connections are kept
// until it is killed.
func TestEstablishedConnectionsEndWithTheProcess(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.webRuns(stubborn, "--stop-grace-period", "8s")
	task := r.awaitRunning("web", 1)[0]
	addr := r.addrOf(task)
	r.awaitPool(webTable, []string{addr})
	r.Packet("tcp", from(0), hostAddr+":8080")
	r.Packet("tcp", from(0), hostAddr+":8080")
	if _, err := r.get("http://" + addr + "/bad"); err != nil {
		t.Fatal(err)
	}
	r.until("its withdrawal", func() bool { return !slices.Contains(r.pool(webTable), addr) })
	if _, n := r.half(addr); n != 1 && r.jailsHave(task) {
		t.Error("an established connection was cut while the process lived")
	}
	r.until("the end of the task", func() bool { return !r.jailsHave(task) })
	r.until("the end of its connections", func() bool { return len(r.States(addr)) == 0 })
}

// jailsHave tells whether a task's jail lives.
func (r *ring) jailsHave(task swarm.Task) bool {
	live, _ := r.Jails()
	return slices.ContainsFunc(live, func(j string) bool { return strings.HasPrefix(j, task.Status.ContainerStatus.ContainerID) })
}

// pool-3: whatever comes between, the table is what the tasks are; what
// somebody changed in it is set right without any event.
func TestPoolsDoNotDrift(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.web("--replicas", "2")
	r.awaitPool(webTable, r.addrsOf(r.awaitRunning("web", 2)))
	for i, n := range []int{4, 1, 3, 2} {
		r.Fail("-T replace", 1+i%2) // some of the calls fail on the way
		r.docker("service", "scale", "--detach", fmt.Sprintf("web=%d", n))
		r.awaitPool(webTable, r.addrsOf(r.awaitRunning("web", n)))
	}
	r.Clear()
	want := r.pool(webTable)
	for _, change := range [][]string{{"add", "10.88.0.250"}, {"delete", want[0]}, {"replace"}} {
		args := append([]string{"-a", r.rdr(), "-t", webTable, "-T"}, change...)
		if _, err := r.Run("pfctl", args...); err != nil {
			t.Fatal(err)
		}
		begin := time.Now()
		r.awaitPool(webTable, want)
		t.Logf("%v: repaired after %v", change, time.Since(begin).Round(time.Millisecond))
	}
}

// pool-4: an apply that failed, or hung, is tried again, and the task is not
// killed before it has worked.
func TestFailedApplyIsRetried(t *testing.T) {
	for name, fault := range map[string]func(r *ring){
		"fails": func(r *ring) { r.Fail("-T replace", 1) },
		"hangs": func(r *ring) { r.Hang("-T replace", 1, time.Minute) },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newRing(t)
			r.web("--replicas", "2")
			tasks := r.awaitRunning("web", 2)
			r.awaitPool(webTable, r.addrsOf(tasks))
			addr, jail := r.addrOf(tasks[0]), r.jailOf(tasks[0])
			fault(r)
			if _, err := r.get("http://" + addr + "/bad"); err != nil {
				t.Fatal(err)
			}
			begin := time.Now()
			r.until("its withdrawal", func() bool { return !slices.Contains(r.pool(webTable), addr) })
			t.Logf("withdrawn %v after it went bad", time.Since(begin).Round(time.Millisecond))
			r.awaitPool(webTable, r.addrsOf(r.awaitReplaced(tasks[0], 2)))
			if n := r.Hits("-T replace"); n != 1 {
				t.Errorf("the fault hit %d calls", n)
			}
			if !r.logged("level=", "write pf") {
				t.Error("nothing of it is in the log")
			}
			r.outBeforeRemoval(addr, jail)
		})
	}
}

// outBeforeRemoval looks in the log of command lines that a member was out of
// the table, by a call that worked, before its jail was touched.
func (r *ring) outBeforeRemoval(addr, jail string) {
	r.t.Helper()
	in, was := false, false
	for _, c := range r.Calls() {
		if holds, tells := inTable(c, addr); tells && c.Exit == 0 {
			in, was = holds, was || holds
		}
		if c.Tool == "jail" && slices.Contains(c.Args, jail) {
			if in || !was {
				r.t.Errorf("%s: was %s in the pool? %v; is it still? %v", c, addr, was, in)
			}
			return
		}
	}
	r.t.Errorf("jail %s was never removed", jail)
}

// inTable reads off a call whether it leaves an address in the table of pools:
// a replace of it, or a load of the whole anchor.
func inTable(c call, addr string) (holds, tells bool) {
	words := c.Args
	if !strings.Contains(c.String(), "-t "+webTable+" -T replace") {
		declared := regexp.MustCompile(`(?m)^table <` + webTable + `> .*$`).FindString(c.Stdin)
		if c.Tool != "pfctl" || declared == "" {
			return false, false
		}
		words = strings.FieldsFunc(declared, func(r rune) bool { return strings.ContainsRune(" ,{}", r) })
	}
	return slices.Contains(words, addr), true
}

// pool-6: what somebody flushed is back, with no task restarted; a hook that
// goes missing is told.
func TestFlushedRulesComeBack(t *testing.T) {
	t.Parallel()
	r := newRing(t)
	r.web("--replicas", "2")
	tasks := r.awaitRunning("web", 2)
	r.awaitPool(webTable, r.addrsOf(tasks))
	before, rdr, nat := r.dump(), r.rdr(), r.anchor("nat")
	for _, anchor := range []string{rdr, nat} {
		if _, err := r.Run("pfctl", "-a", anchor, "-F", "all"); err != nil {
			t.Fatal(err)
		}
	}
	begin := time.Now()
	r.until("the rules", func() bool { return len(r.World().PF.AnchorNames()) == 2 && r.dump() == before })
	t.Logf("back after %v", time.Since(begin).Round(time.Millisecond))
	after := r.awaitRunning("web", 2)
	if !slices.EqualFunc(tasks, after, func(a, b swarm.Task) bool { return a.ID == b.ID }) {
		t.Error("tasks were restarted")
	}
	r.ruleset = strings.ReplaceAll(r.ruleset, "rdr-anchor \"satl/*\"\n", "")
	r.MainRuleset(r.ruleset)
	r.until("a word of the missing hook", func() bool { return strings.Contains(r.docker("info"), `rdr-anchor "satl/*"`) })
	r.ruleset = fakefreebsd.MainRuleset // put back: without it there is no cleanup
	r.MainRuleset(r.ruleset)
}

// pool-7: the host's own connections. rdr does not see them, so satld answers on
// the host's addresses itself; with net.pf.filter_local=1 on 127.0.0.1 only.
func TestHostReachesItsOwnPorts(t *testing.T) {
	for local, byForwarder := range map[string]bool{"0": true, "1": false} {
		t.Run("filter_local="+local, func(t *testing.T) {
			t.Parallel()
			r := newHost(t)
			r.Sysctl("net.pf.filter_local", local)
			r.ruleset = strings.ReplaceAll(r.ruleset, "set skip on lo0\n", "")
			r.MainRuleset(r.ruleset)
			r.up()
			r.web()
			r.awaitPool(webTable, r.addrsOf(r.awaitRunning("web", 1)))
			r.until("an answer on 127.0.0.1", func() bool { body, err := r.get("http://127.0.0.1:8080/"); return err == nil && body != "" })
			if byForwarder {
				r.until("an answer on the host's address", func() bool { body, err := r.get("http://" + hostAddr + ":8080/"); return err == nil && body != "" })
			} else if body, err := r.get("http://" + hostAddr + ":8080/"); err == nil {
				t.Errorf("satld answers %q on %s, where pf redirects", body, hostAddr)
			}
			n := 0 // a flow that pf let pass as it was stays so
			r.until("a stranger's packet redirected", func() bool { n++; return r.Packet("tcp", from(n), hostAddr+":8080").Backend.IsValid() })
			if v := r.Packet("tcp", hostAddr+":40000", hostAddr+":8080"); v.Backend.IsValid() == byForwarder {
				t.Errorf("the host's own packet is redirected to %v", v.Backend)
			}
			if v := r.Packet("tcp", "127.0.0.1:40001", "127.0.0.1:8080"); v.Backend.IsValid() {
				t.Errorf("127.0.0.1 is redirected: %v", v.Backend)
			}
		})
	}
}
