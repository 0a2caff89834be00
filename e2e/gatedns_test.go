// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/swarm"

	"satld/internal/slowday"
)

// The cases of the list "gate-dns", and where each is shown:
//
//	gate-dns-1  TestFastFirstPass; a change of leader needs a cluster: not here
//	gate-dns-2  TestTrafficFollowsTheVerdict
//	gate-dns-3  TestPeersFindEachOther
//	gate-dns-4  TestAddressesFollowTheTasks

// A first pass within a millisecond is not missed: at the moment a task is
// told to be RUNNING it is in DNS and in the pool, every time.
func TestFastFirstPass(t *testing.T) {
	t.Parallel()
	const services, deploys = 3, 5
	d := loaded(t)
	name := func(i int) string { return fmt.Sprintf("fast%d", i) }
	for i := range services {
		d.create(name(i), shell("exit 0", starting(0, time.Millisecond)), publish(d.port(i)), restarts(0), func(s *swarm.ServiceSpec) {
			s.UpdateConfig = &swarm.UpdateConfig{Parallelism: 1, Order: swarm.UpdateOrderStopFirst, Monitor: time.Millisecond}
		})
	}
	var wg sync.WaitGroup
	seen := make([]int, services)
	for i := range services {
		wg.Go(func() {
			d := d.in(t)
			last := ""
			for deploy := range deploys {
				if deploy > 0 {
					if err := d.change(name(i), func(s *swarm.ServiceSpec) { s.TaskTemplate.ForceUpdate++ }); err != nil {
						t.Errorf("%s: %v", name(i), err)
						return
					}
				}
				var now task
				for deadline := time.Now().Add(30 * time.Second); ; {
					if list := d.running(name(i)); len(list) == 1 && list[0].ID != last {
						now = list[0]
						break
					}
					if time.Now().After(deadline) {
						t.Errorf("deploy %d of %s is not RUNNING within 30s: %+v", deploy, name(i), d.tasks(name(i)))
						return
					}
					time.Sleep(5 * time.Millisecond)
				}
				addrs, _, err := d.ask(name(i))
				body, ferr := fetch(fmt.Sprintf("http://127.0.0.1:%d/", d.port(i)))
				// app binds its port a moment after its start; its probe does not ask it.
				for again := 0; ferr != nil && again < 40; again++ {
					time.Sleep(50 * time.Millisecond)
					body, ferr = fetch(fmt.Sprintf("http://127.0.0.1:%d/", d.port(i)))
				}
				c, ok := d.look(now.Status.ContainerStatus.ContainerID)
				if !ok || c.State.Health == nil || c.State.Health.Status != "healthy" {
					t.Errorf("deploy %d of %s is RUNNING without a pass", deploy, name(i))
					return
				}
				if err != nil || !slices.Equal(addrs, []string{address(t, c)}) {
					t.Errorf("deploy %d of %s is RUNNING and DNS says %v, %v", deploy, name(i), addrs, err)
				}
				if ferr != nil || body != c.Config.Hostname {
					t.Errorf("deploy %d of %s is RUNNING and its port says %q, %v", deploy, name(i), body, ferr)
				}
				last = now.ID
				seen[i]++
			}
		})
	}
	wg.Wait()
	for i := range services {
		if seen[i] != deploys {
			t.Errorf("%d of %d deploys of %s", seen[i], deploys, name(i))
		}
	}
}

// answers is who answered at a published port, and when it was asked.
type answers struct {
	mu   sync.Mutex
	list []answer
	stop chan struct{}
	done sync.WaitGroup
}

type answer struct {
	asked, had time.Time
	by         string
	err        error
}

// load asks a published port 100 times a second until it is ended.
func load(url string) *answers {
	a := &answers{stop: make(chan struct{})}
	for range 2 {
		a.done.Go(func() {
			tick := time.NewTicker(20 * time.Millisecond)
			defer tick.Stop()
			for {
				select {
				case <-a.stop:
					return
				case <-tick.C:
				}
				x := answer{asked: time.Now()}
				x.by, x.err = fetch(url)
				x.had = time.Now()
				a.mu.Lock()
				a.list = append(a.list, x)
				a.mu.Unlock()
			}
		})
	}
	return a
}

func (a *answers) end() []answer {
	close(a.stop)
	a.done.Wait()
	return a.list
}

// of an event of a container.
func eventOf(list []events.Message, id string, action events.Action) (at time.Time, ok bool) {
	for _, m := range list {
		if m.Actor.ID == id && m.Action == action {
			return time.Unix(0, m.TimeNano), true
		}
	}
	return time.Time{}, false
}

// Traffic reaches a task after its first pass and until it is condemned or
// told to stop, and never else; no request is lost over any of it.
func TestTrafficFollowsTheVerdict(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	begun := time.Now()
	// The application answers from its start: who is asked too early is seen.
	d.create("web", shell("[ -e /tmp/ready ] && [ ! -e /tmp/bad ]", timing(time.Second, time.Second, 2), starting(time.Minute, 300*time.Millisecond)), publish(d.port(0)), restarts(time.Hour))
	first := d.await(20*time.Second, "web.1", "up", func(c container.InspectResponse) bool { return c.State.Running })
	d.docker("exec", first.ID, "touch", "/tmp/ready")
	d.awaitTask(10*time.Second, "web", "running", func(x task) bool { return x.Status.State == "running" })
	url := fmt.Sprintf("http://127.0.0.1:%d/", d.port(0))
	eventually(t, 5*time.Second, "answer", func() bool { _, err := fetch(url); return err == nil })
	clients := load(url)

	scale := func(n uint64) {
		t.Helper()
		if err := d.change("web", func(s *swarm.ServiceSpec) { replicas(n)(s) }); err != nil {
			t.Fatal(err)
		}
	}
	scale(3)
	ids := map[int]string{1: first.ID}
	for slot := 2; slot <= 3; slot++ {
		ids[slot] = d.awaitProbes(20*time.Second, fmt.Sprintf("web.%d", slot), 3).ID
	}
	ready := map[int]time.Time{}
	for slot := 2; slot <= 3; slot++ {
		ready[slot] = time.Now()
		d.docker("exec", ids[slot], "touch", "/tmp/ready")
	}
	eventually(t, 15*time.Second, "all three", func() bool { return len(d.running("web")) == 3 })
	time.Sleep(500 * time.Millisecond)
	d.docker("exec", ids[2], "touch", "/tmp/bad")
	d.awaitTask(15*time.Second, "web", "failed", failed)
	scale(1)
	// The slots that are left or dropped are the engine's choice.
	eventually(t, 15*time.Second, "one left", func() bool { return len(d.running("web")) == 1 })
	eventually(t, 15*time.Second, "and the other ended", func() bool {
		var up int
		for slot := 1; slot <= 3; slot++ {
			if c, ok := d.look(ids[slot]); ok && c.State.Running {
				up++
			}
		}
		return up <= 1
	})
	list := clients.end()
	happened := d.happened(begun, `{"type":["container"]}`)

	by := map[string]int{}
	for _, x := range list {
		if x.err != nil {
			t.Errorf("a request was lost %v after the begin: %v", x.asked.Sub(begun), x.err)
			continue
		}
		by[x.by]++
	}
	for slot, id := range ids {
		if by[id[:12]] == 0 {
			t.Errorf("slot %d was never asked", slot)
		}
		pass, ok := eventOf(happened, id, "health_status: healthy")
		if !ok {
			t.Errorf("slot %d never passed", slot)
		}
		bad, condemned := eventOf(happened, id, "health_status: unhealthy")
		kill, killed := eventOf(happened, id, events.ActionKill)
		for _, x := range list {
			switch {
			case x.err != nil || x.by != id[:12]:
			case x.had.Before(ready[slot]) || slot != 1 && x.had.Before(pass):
				t.Errorf("slot %d was asked %v before its first pass", slot, pass.Sub(x.had))
			case condemned && x.asked.After(bad.Add(time.Second)):
				t.Errorf("slot %d was asked %v after its verdict", slot, x.asked.Sub(bad))
			case killed && x.asked.After(kill):
				t.Errorf("slot %d was asked %v after its stop signal", slot, x.asked.Sub(kill))
			}
		}
	}
	t.Logf("%d requests: %v", len(list), by)
}

// Tasks that prove themselves by their peers: with the label they find each
// other while starting; without it, and by the plain name, only who serves.
func TestPeersFindEachOther(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	peers := func(name string) *container.HealthConfig {
		return shell(`n=$(nslookup -type=a `+name+` | sed 1,2d | grep -c '^Address'); echo "$n of `+name+`"; [ "$n" -eq 3 ]`,
			timing(time.Second, 10*time.Second, 1000), starting(0, 300*time.Millisecond))
	}
	d.create("plain", nil)
	d.create("lone", peers("tasks.lone"), replicas(3))
	d.create("byname", peers("db2"), replicas(3), label("satl.dns.not-ready", "true"))
	d.awaitProbes(30*time.Second, "lone.1", 2)
	d.create("db", peers("tasks.db"), replicas(3), label("satl.dns.not-ready", "true"))
	sawPlain := 0
	begun := time.Now()
	for len(d.running("db")) < 3 {
		if n := len(d.resolve("db")); n > 0 {
			sawPlain++
			if len(d.running("db")) == 0 && n > 3 {
				t.Errorf("the plain name lists %d", n)
			}
		}
		if time.Since(begun) > slowday.Of(30*time.Second) {
			t.Fatalf("not all healthy within 30s: %+v", d.tasks("db"))
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Logf("all healthy after %v", time.Since(begun))
	if n := len(d.resolve("db")); n != 3 {
		t.Errorf("the plain name lists %d of 3 that serve", n)
	}
	// Without the label they deadlock, as they asked for.
	if n := len(d.running("lone")); n != 0 {
		t.Errorf("%d tasks proved themselves by peers that do not serve", n)
	}
	for _, name := range []string{"lone", "tasks.lone", "byname"} {
		if addrs := d.resolve(name); len(addrs) != 0 {
			t.Errorf("%s lists tasks that do not serve: %v", name, addrs)
		}
	}
	if addrs := d.resolve("tasks.byname"); len(addrs) != 3 {
		t.Errorf("tasks.byname lists %v, want its three starting tasks", addrs)
	}
	// A starting task resolves others, and itself.
	c, _ := d.look("lone.1")
	for _, name := range []string{"plain", "db", "lone.1"} {
		if out, stderr, err := d.try("exec", c.ID, "nslookup", "-type=a", name); err != nil {
			t.Errorf("a starting task does not resolve %s: %v\n%s%s", name, err, out, stderr)
		}
	}
	if got := d.resolve("lone.1"); !slices.Equal(got, []string{address(t, c)}) {
		t.Errorf("lone.1 is %v, want %s", got, address(t, c))
	}
	if got, _, err := d.ask(elsewhere); err != nil || !slices.Equal(got, []string{elsewhereAddr}) {
		t.Errorf("a name of the outside is %v, want %s: %v", got, elsewhereAddr, err)
	}
}

// Names follow the tasks over scaling and removal, and an address that was
// given up is not given to another while a resolver may still remember it.
func TestAddressesFollowTheTasks(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	begun := time.Now()
	d.create("web", shell("exit 0", starting(0, 100*time.Millisecond)), replicas(3), restarts(0))
	eventually(t, 30*time.Second, "three run", func() bool { return len(d.running("web")) == 3 })

	// Every answer, with when it was asked for.
	type told struct {
		at    time.Time
		addrs []string
	}
	var mu sync.Mutex
	var log []told
	stop := make(chan struct{})
	var asking sync.WaitGroup
	asking.Go(func() {
		for {
			select {
			case <-stop:
				return
			case <-time.After(20 * time.Millisecond):
			}
			at := time.Now()
			addrs, ttl, err := d.ask("web")
			if err != nil && !strings.Contains(err.Error(), "NXDOMAIN") {
				t.Errorf("web: %v", err)
			}
			if ttl > 5 {
				t.Errorf("TTL %d", ttl)
			}
			mu.Lock()
			log = append(log, told{at, addrs})
			mu.Unlock()
		}
	})
	owner := map[string]string{} // address: container
	note := func() {
		t.Helper()
		for _, x := range d.running("web") {
			if c, ok := d.look(x.Status.ContainerStatus.ContainerID); ok && c.State.Running {
				owner[address(t, c)] = c.ID
			}
		}
	}
	live := func() (addrs []string) {
		for _, x := range d.running("web") {
			if c, ok := d.look(x.Status.ContainerStatus.ContainerID); ok && c.State.Running {
				addrs = append(addrs, address(t, c))
			}
		}
		slices.Sort(addrs)
		return addrs
	}
	note()
	for _, n := range []uint64{1, 3} {
		if err := d.change("web", func(s *swarm.ServiceSpec) { replicas(n)(s) }); err != nil {
			t.Fatal(err)
		}
		eventually(t, 20*time.Second, fmt.Sprint("scaled to ", n), func() bool { return len(d.running("web")) == int(n) })
		eventually(t, time.Second+e(), "exactly the live set", func() bool { return slices.Equal(d.resolve("web"), live()) })
		note()
	}
	d.remove("web")
	eventually(t, time.Second+e(), "name of a removed service gone", func() bool {
		addrs, _, _ := d.ask("web")
		return len(addrs) == 0
	})
	close(stop)
	asking.Wait()
	eventually(t, 20*time.Second, "containers gone", func() bool { return len(d.happened(begun, `{"event":["die"]}`)) >= 5 })
	freed := time.Now()
	d.create("next", nil, replicas(3))
	eventually(t, 30*time.Second, "the next run", func() bool { return len(d.running("next")) == 3 })
	if took := time.Since(freed); took < 5*time.Second {
		for _, x := range d.running("next") {
			c, _ := d.look(x.Status.ContainerStatus.ContainerID)
			if a := address(t, c); owner[a] != "" {
				t.Errorf("address %s was given to another service after at most %v", a, took)
			}
		}
	} else {
		t.Logf("too slow to look at the reuse of addresses: %v", took)
	}

	// Nobody was named after it was told to stop.
	happened := d.happened(begun, `{"type":["container"]}`)
	if len(owner) < 5 {
		t.Errorf("only %d addresses for 5 tasks: %v", len(owner), owner)
	}
	for addr, id := range owner {
		if net.ParseIP(addr) == nil {
			t.Fatalf("address %q", addr)
		}
		kill, ok := eventOf(happened, id, events.ActionKill)
		if !ok {
			t.Errorf("%s was never stopped", id)
		}
		for _, x := range log {
			if x.at.After(kill) && slices.Contains(x.addrs, addr) {
				t.Errorf("%s is named %v after its stop signal", addr, x.at.Sub(kill))
			}
		}
	}
	t.Logf("%d answers", len(log))
}
