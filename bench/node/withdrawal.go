// SPDX-License-Identifier: BSD-2-Clause

package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/filters"
	"github.com/docker/docker/api/types/swarm"
	"github.com/miekg/dns"
)

// Settings of the probed service, and what the rule makes of them.
const (
	interval = time.Second
	retries  = 2
	pollRest = 2 * time.Millisecond // between two questions of one client
)

// attempt is one question of a client from outside, on a socket of its own.
type attempt struct {
	start time.Time
	hit   bool // the broken task was reached, or named
	err   error
}

// round is what one broken task shows.
type round struct {
	verdict time.Duration // from the failure on
	probe   time.Duration // the slowest probe of the streak
	port    outage
	name    outage
}

// outage is what a client saw of a withdrawal, counted from the verdict.
type outage struct {
	lastHit time.Duration // the last question that still found the task was asked then; negative: before the verdict
	clear   time.Duration // by then it had had its turn again, and was not found
	asked   int
	failed  int // questions without an answer
}

// withdrawal breaks one of two published tasks, again and again, and tells
// when clients no longer get to it.
func (t *target) withdrawal(ctx context.Context, rounds int) error {
	settle()
	var all []round
	for i := range rounds {
		r, err := t.withdraw(ctx, fmt.Sprintf("web%d", i))
		if err != nil {
			return err
		}
		all = append(all, r)
	}
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	defer w.Flush()
	fmt.Fprintln(w, "round\tverdict after failure\tbound\tport: last hit\tport: clear\tname: last hit\tname: clear\tquestions\tunanswered")
	ms := func(d time.Duration) string { return fmt.Sprintf("%+.1f ms", d.Seconds()*1000) }
	var worst round
	for i, r := range all {
		fmt.Fprintf(w, "%d\t%.2f s\t%.2f s\t%s\t%s\t%s\t%s\t%d+%d\t%d+%d\n", i+1, r.verdict.Seconds(), r.bound().Seconds(),
			ms(r.port.lastHit), ms(r.port.clear), ms(r.name.lastHit), ms(r.name.clear),
			r.port.asked, r.name.asked, r.port.failed, r.name.failed)
		worst.verdict = max(worst.verdict, r.verdict)
		worst.port.clear, worst.name.clear = max(worst.port.clear, r.port.clear), max(worst.name.clear, r.name.clear)
	}
	fmt.Fprintf(w, "worst\t%.2f s\t\t\t%s\t\t%s\t\t\n", worst.verdict.Seconds(), ms(worst.port.clear), ms(worst.name.clear))
	fmt.Fprintln(w, "target\t<= bound\t\t\t< 250 ms\t\t< 250 ms\t\t")
	return nil
}

// bound is the rule for a verdict after a hard failure.
func (r round) bound() time.Duration { return retries*(interval+r.probe) + interval }

func (t *target) withdraw(ctx context.Context, service string) (r round, err error) {
	port, err := freePort()
	if err != nil {
		return r, err
	}
	// PID 1 does not mind SIGTERM, so that the task answers for its whole
	// grace: only the withdrawal keeps clients away.
	spec := t.serviceOf(service, 2,
		&container.HealthConfig{Test: []string{"CMD-SHELL", "test -e /tmp/ready"}, Interval: interval, Timeout: interval, Retries: retries},
		"sh", "-c", "mkdir -p /tmp/www; hostname >/tmp/www/who; touch /tmp/ready; exec httpd -f -p 80 -h /tmp/www")
	grace := 3 * time.Second
	spec.TaskTemplate.ContainerSpec.StopGracePeriod = &grace
	spec.EndpointSpec = &swarm.EndpointSpec{Ports: []swarm.PortConfig{{Protocol: swarm.PortConfigProtocolTCP, TargetPort: 80, PublishedPort: uint32(port)}}}
	if err := t.start(ctx, spec, often); err != nil {
		return r, err
	}
	list, err := t.containers(ctx, service)
	if err != nil {
		return r, err
	}
	victim, err := t.api.ContainerInspect(ctx, list[0].ID)
	if err != nil {
		return r, err
	}
	var address, resolver string
	for name, e := range victim.NetworkSettings.Networks {
		if name != "ingress" { // which has no names
			address, resolver = e.IPAddress, e.Gateway
		}
	}

	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	messages, failures := t.api.Events(ctx, events.ListOptions{Filters: filters.NewArgs(filters.Arg("type", "container"), filters.Arg("container", victim.ID))})
	polling, stop := context.WithCancel(ctx)
	defer stop()
	var wg sync.WaitGroup
	var asked, named []attempt
	wg.Go(func() {
		asked = poll(polling, func() (bool, error) {
			who, err := ask(fmt.Sprintf("127.0.0.1:%d", port))
			return who == victim.ID[:12], err // its host name, as the default is
		})
	})
	wg.Go(func() {
		named = poll(polling, func() (bool, error) { return names(resolver+":53", service, address) })
	})
	time.Sleep(500 * time.Millisecond) // the task is seen serving
	if err := t.exec(ctx, victim.ID, "rm", "/tmp/ready"); err != nil {
		return r, err
	}
	failed := time.Now()
	var verdict time.Time
	for verdict.IsZero() {
		select {
		case m := <-messages:
			if m.Action == "health_status: unhealthy" {
				verdict = time.Unix(0, m.TimeNano)
			}
		case err := <-failures:
			return r, fmt.Errorf("wait for the verdict on %s: %w", service, err)
		}
	}
	now, err := t.api.ContainerInspect(ctx, victim.ID)
	if err != nil {
		return r, err
	}
	time.Sleep(time.Second)
	stop()
	wg.Wait()
	r.verdict = verdict.Sub(failed)
	if h := now.State.Health; h != nil {
		for _, l := range h.Log[max(0, len(h.Log)-retries):] {
			r.probe = max(r.probe, l.End.Sub(l.Start))
		}
	}
	if r.port, err = outageOf(asked, verdict, 2); err != nil {
		return r, fmt.Errorf("published port of %s: %w", service, err)
	}
	if r.name, err = outageOf(named, verdict, 1); err != nil {
		return r, fmt.Errorf("name of %s: %w", service, err)
	}
	return r, t.remove(ctx, service)
}

// outageOf reads a client's questions; every turn-th is the broken task's.
func outageOf(all []attempt, verdict time.Time, turn int) (o outage, err error) {
	last := -1
	for i, a := range all {
		if a.hit {
			last = i
		}
		if a.err != nil {
			o.failed++
		}
	}
	o.asked = len(all)
	if last < 0 {
		return o, errors.New("the task was never reached")
	}
	if last+turn >= len(all) {
		return o, fmt.Errorf("the task was still reached %s after the verdict", all[last].start.Sub(verdict))
	}
	o.lastHit, o.clear = all[last].start.Sub(verdict), all[last+turn].start.Sub(verdict)
	return o, nil
}

func poll(ctx context.Context, once func() (bool, error)) (all []attempt) {
	for ctx.Err() == nil {
		a := attempt{start: time.Now()}
		a.hit, a.err = once()
		all = append(all, a)
		time.Sleep(pollRest)
	}
	return all
}

// ask gets the name of the task that answers a new connection.
func ask(address string) (string, error) {
	conn, err := net.DialTimeout("tcp", address, time.Second)
	if err != nil {
		return "", err
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(time.Second))
	if _, err := io.WriteString(conn, "GET /who HTTP/1.0\r\n\r\n"); err != nil {
		return "", err
	}
	answer, err := io.ReadAll(conn)
	_, body, _ := strings.Cut(string(answer), "\r\n\r\n")
	return strings.TrimSpace(body), err
}

// names tells whether the service's name stands for the address, too.
func names(server, service, address string) (bool, error) {
	m := new(dns.Msg).SetQuestion(service+".", dns.TypeA)
	answer, _, err := (&dns.Client{Timeout: time.Second}).Exchange(m, server)
	if err != nil {
		return false, err
	}
	for _, rr := range answer.Answer {
		if a, ok := rr.(*dns.A); ok && a.A.String() == address {
			return true, nil
		}
	}
	if answer.Rcode != dns.RcodeSuccess {
		return false, errors.New(dns.RcodeToString[answer.Rcode])
	}
	return false, nil
}

// freePort is a TCP port that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
