// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/docker/docker/api/types/container"
	"github.com/docker/docker/api/types/events"
	"github.com/docker/docker/api/types/mount"
	"github.com/docker/docker/api/types/swarm"
	"github.com/miekg/dns"

	"satld/internal/slowday"
)

// in is the daemon as another test sees it: what fails, fails that test. Only
// the test that made the daemon may stop and start it.
func (d *daemon) in(t *testing.T) *daemon {
	c := *d
	c.t = t
	return &c
}

// call speaks HTTP to the daemon; a body is sent as JSON.
func (d *daemon) call(method, path string, body any) (status int, answer []byte) {
	d.t.Helper()
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			d.t.Fatal(err)
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequest(method, "http://satl/v1.47"+path, in)
	if err != nil {
		d.t.Fatal(err)
	}
	req.Header.Set("Content-Type", "application/json")
	client := http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var dialer net.Dialer
			return dialer.DialContext(ctx, "unix", d.sock)
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	if err != nil {
		d.t.Fatalf("%s %s: %v", method, path, err)
	}
	return resp.StatusCode, answer
}

// must is call that has to succeed and be what into says.
func (d *daemon) must(method, path string, body, into any) {
	d.t.Helper()
	status, answer := d.call(method, path, body)
	if status >= 300 {
		d.t.Fatalf("%s %s: %d %s", method, path, status, answer)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			d.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
}

// option changes the spec of a service under test.
type option func(*swarm.ServiceSpec)

func command(argv ...string) option {
	return func(s *swarm.ServiceSpec) { s.TaskTemplate.ContainerSpec.Command = argv }
}

func image(ref string) option {
	return func(s *swarm.ServiceSpec) { s.TaskTemplate.ContainerSpec.Image = ref }
}

func replicas(n uint64) option {
	return func(s *swarm.ServiceSpec) { s.Mode.Replicated.Replicas = &n }
}

func grace(d time.Duration) option {
	return func(s *swarm.ServiceSpec) { s.TaskTemplate.ContainerSpec.StopGracePeriod = &d }
}

func label(key, value string) option {
	return func(s *swarm.ServiceSpec) { s.Labels = map[string]string{key: value} }
}

func publish(port int) option {
	return func(s *swarm.ServiceSpec) {
		s.EndpointSpec = &swarm.EndpointSpec{Ports: []swarm.PortConfig{{Protocol: "tcp", TargetPort: 80, PublishedPort: uint32(port)}}}
	}
}

// control binds a directory of the host to /ctl, so that a test steers probes
// without an exec.
func control(dir string) option {
	return func(s *swarm.ServiceSpec) {
		s.TaskTemplate.ContainerSpec.Mounts = []mount.Mount{{Type: mount.TypeBind, Source: dir, Target: "/ctl"}}
	}
}

// restarts has the engine replace what ends, after a delay.
func restarts(delay time.Duration) option {
	return func(s *swarm.ServiceSpec) {
		s.TaskTemplate.RestartPolicy = &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionAny, Delay: &delay}
	}
}

// serviceSpec is one task of app:1 that is not replaced, with a probe.
func serviceSpec(name string, hc *container.HealthConfig, opts ...option) swarm.ServiceSpec {
	one, second := uint64(1), time.Second
	s := swarm.ServiceSpec{
		Annotations: swarm.Annotations{Name: name},
		TaskTemplate: swarm.TaskSpec{
			ContainerSpec: &swarm.ContainerSpec{Image: "app:1", Healthcheck: hc, StopGracePeriod: &second},
			RestartPolicy: &swarm.RestartPolicy{Condition: swarm.RestartPolicyConditionNone},
		},
		Mode: swarm.ServiceMode{Replicated: &swarm.ReplicatedService{Replicas: &one}},
	}
	for _, o := range opts {
		o(&s)
	}
	return s
}

// create makes a service and returns what it was warned of.
func (d *daemon) create(name string, hc *container.HealthConfig, opts ...option) (warnings []string) {
	d.t.Helper()
	var created swarm.ServiceCreateResponse
	d.must("POST", "/services/create", serviceSpec(name, hc, opts...), &created)
	return created.Warnings
}

func (d *daemon) service(name string) swarm.Service {
	d.t.Helper()
	var s swarm.Service
	d.must("GET", "/services/"+name, nil, &s)
	return s
}

// change updates a service's spec; the error is the daemon's refusal.
func (d *daemon) change(name string, edit func(*swarm.ServiceSpec)) error {
	d.t.Helper()
	s := d.service(name)
	edit(&s.Spec)
	if status, answer := d.call("POST", "/services/"+s.ID+"/update?version="+strconv.FormatUint(s.Version.Index, 10), s.Spec); status != http.StatusOK {
		return errors.New(strconv.Itoa(status) + " " + string(answer))
	}
	return nil
}

func (d *daemon) remove(name string) {
	d.t.Helper()
	d.must("DELETE", "/services/"+name, nil, nil)
}

// shell and cmd are probes in the two forms of Docker.
func shell(line string, more ...func(*container.HealthConfig)) *container.HealthConfig {
	return probe([]string{"CMD-SHELL", line}, more...)
}

func cmd(argv ...string) *container.HealthConfig { return probe(append([]string{"CMD"}, argv...)) }

// probe is one that is quick unless told otherwise, and whose failures are
// not counted to an end that a test would see.
func probe(test []string, more ...func(*container.HealthConfig)) *container.HealthConfig {
	hc := &container.HealthConfig{Test: test, Interval: time.Second, Timeout: 10 * time.Second, Retries: 1000}
	for _, m := range more {
		m(hc)
	}
	return hc
}

func timing(interval, timeout time.Duration, retries int) func(*container.HealthConfig) {
	return func(hc *container.HealthConfig) { hc.Interval, hc.Timeout, hc.Retries = interval, timeout, retries }
}

func starting(period, interval time.Duration) func(*container.HealthConfig) {
	return func(hc *container.HealthConfig) { hc.StartPeriod, hc.StartInterval = period, interval }
}

// look inspects a container by any of its names; ok is false while there is none.
func (d *daemon) look(name string) (c container.InspectResponse, ok bool) {
	d.t.Helper()
	status, answer := d.call("GET", "/containers/"+name+"/json", nil)
	if status == http.StatusNotFound {
		return c, false
	}
	if err := json.Unmarshal(answer, &c); err != nil || status != http.StatusOK || c.ContainerJSONBase == nil {
		d.t.Fatalf("inspect %s: %d %s (%v)", name, status, answer, err)
	}
	return c, true
}

// await waits until a container of that name is as ok wants it.
func (d *daemon) await(within time.Duration, name, what string, ok func(container.InspectResponse) bool) (c container.InspectResponse) {
	d.t.Helper()
	var there bool
	begun := time.Now()
	for {
		if c, there = d.look(name); there && ok(c) {
			return c
		}
		if slowday.Over(begun, within) {
			state, _ := json.Marshal(c.ContainerJSONBase)
			d.t.Fatalf("%s is not %s within %v: %s", name, what, within, state)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

// awaitHealth waits for a verdict.
func (d *daemon) awaitHealth(within time.Duration, name, verdict string) container.InspectResponse {
	d.t.Helper()
	return d.await(within, name, verdict, func(c container.InspectResponse) bool {
		return c.State.Health != nil && c.State.Health.Status == verdict
	})
}

// awaitProbes waits until the log of a container's health has n results.
func (d *daemon) awaitProbes(within time.Duration, name string, n int) container.InspectResponse {
	d.t.Helper()
	return d.await(within, name, strconv.Itoa(n)+" times probed", func(c container.InspectResponse) bool {
		return c.State.Health != nil && len(c.State.Health.Log) >= n
	})
}

// awaitTask waits until a service has a task as ok wants it.
func (d *daemon) awaitTask(within time.Duration, service, what string, ok func(task) bool) (found task) {
	d.t.Helper()
	begun := time.Now()
	for {
		tasks := d.tasks(service)
		if i := slices.IndexFunc(tasks, ok); i >= 0 {
			return tasks[i]
		}
		if slowday.Over(begun, within) {
			d.t.Fatalf("no task of %s is %s within %v: %+v", service, what, within, tasks)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func failed(t task) bool { return t.Status.State == "failed" }

// address is a container's address in the node's network.
func address(t *testing.T, c container.InspectResponse) string {
	t.Helper()
	for name, ep := range c.NetworkSettings.Networks {
		if name != "ingress" { // which has no names
			return ep.IPAddress
		}
	}
	t.Fatalf("%s has no address", c.Name)
	return ""
}

// happened are the node's events since a moment; filters as in
// `docker events`, "" for all.
func (d *daemon) happened(since time.Time, filters string) (list []events.Message) {
	d.t.Helper()
	q := url.Values{"since": {stamp(since)}, "until": {stamp(time.Now())}}
	if filters != "" {
		q.Set("filters", filters)
	}
	_, answer := d.call("GET", "/events?"+q.Encode(), nil)
	dec := json.NewDecoder(bytes.NewReader(answer))
	for {
		var m events.Message
		if err := dec.Decode(&m); err == io.EOF {
			return list
		} else if err != nil {
			d.t.Fatal(err)
		}
		list = append(list, m)
	}
}

func stamp(t time.Time) string {
	return strconv.FormatInt(t.Unix(), 10) + "." + strings.Repeat("0", 9-len(strconv.Itoa(t.Nanosecond()))) + strconv.Itoa(t.Nanosecond())
}

// ask puts a question for a name's addresses to the daemon's resolver, as a
// stranger on the host. An answer that could not be had is an error.
func (d *daemon) ask(name string) (addrs []string, ttl uint32, err error) {
	q := new(dns.Msg).SetQuestion(name+".", dns.TypeA)
	r, _, err := (&dns.Client{Timeout: 2 * time.Second}).Exchange(q, d.subnet+".0.1:53")
	if err != nil {
		return nil, 0, err
	}
	if r.Rcode != dns.RcodeSuccess {
		return nil, 0, errors.New(dns.RcodeToString[r.Rcode])
	}
	for _, rr := range r.Answer {
		if a, ok := rr.(*dns.A); ok {
			addrs = append(addrs, a.A.String())
			ttl = max(ttl, a.Hdr.Ttl)
		}
	}
	slices.Sort(addrs)
	return addrs, ttl, nil
}

// resolve is ask that must be answered.
func (d *daemon) resolve(name string) []string {
	d.t.Helper()
	addrs, ttl, err := d.ask(name)
	if err != nil {
		d.t.Fatalf("resolve %s: %v", name, err)
	}
	if ttl > 5 {
		d.t.Errorf("%s has TTL %d, want at most 5", name, ttl)
	}
	return addrs
}
