// SPDX-License-Identifier: BSD-2-Clause

package freebsd

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/docker/docker/api/types/swarm"

	"satld/internal/slowday"
)

// docker runs the docker CLI, which must succeed, and returns what it printed.
func (r *ring) docker(args ...string) string {
	r.t.Helper()
	out, err := r.tryDocker(args...)
	if err != nil {
		r.t.Fatalf("docker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
	return strings.TrimSpace(out)
}

func (r *ring) tryDocker(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(r.t.Context(), 90*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "docker", append([]string{"-H", "unix://" + r.sock}, args...)...)
	cmd.Env = append(os.Environ(), "DOCKER_CONFIG="+filepath.Join(r.dir, "docker-config"))
	out, err := cmd.CombinedOutput()
	return string(out), err
}

// try asks the API.
func (r *ring) try(method, path string, body any) (status int, answer []byte, err error) {
	var in io.Reader
	if body != nil {
		data, err := json.Marshal(body)
		if err != nil {
			return 0, nil, err
		}
		in = bytes.NewReader(data)
	}
	req, err := http.NewRequest(method, "http://satl/v1.47"+path, in)
	if err != nil {
		return 0, nil, err
	}
	if body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	client := http.Client{Timeout: 60 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			return new(net.Dialer).DialContext(ctx, "unix", r.sock)
		},
	}}
	resp, err := client.Do(req)
	if err != nil {
		return 0, nil, err
	}
	defer resp.Body.Close()
	answer, err = io.ReadAll(resp.Body)
	return resp.StatusCode, answer, err
}

// ask is try that must succeed and be what into says.
func (r *ring) ask(method, path string, body, into any) {
	r.t.Helper()
	status, answer, err := r.try(method, path, body)
	if err != nil || status >= 300 {
		r.t.Fatalf("%s %s: %d %s %v", method, path, status, answer, err)
	}
	if into != nil {
		if err := json.Unmarshal(answer, into); err != nil {
			r.t.Fatalf("%s %s: %v in %s", method, path, err, answer)
		}
	}
}

// tasks are those of a service, the oldest first.
func (r *ring) tasks(service string) (list []swarm.Task) {
	r.t.Helper()
	r.ask("GET", "/tasks?filters="+`%7B%22service%22%3A%5B%22`+service+`%22%5D%7D`, nil, &list)
	slices.SortFunc(list, func(a, b swarm.Task) int { return a.CreatedAt.Compare(b.CreatedAt) })
	return list
}

// running are the tasks that are RUNNING and wanted so.
func (r *ring) running(service string) []swarm.Task {
	r.t.Helper()
	return slices.DeleteFunc(r.tasks(service), func(t swarm.Task) bool {
		return t.Status.State != swarm.TaskStateRunning || t.DesiredState != swarm.TaskStateRunning
	})
}

// awaitRunning waits until as many run.
func (r *ring) awaitRunning(service string, n int) (list []swarm.Task) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d running tasks of %s", n, service), func() bool {
		list = r.running(service)
		return len(list) == n
	})
	return list
}

// awaitReplaced waits until as many tasks of web run, without that one.
func (r *ring) awaitReplaced(old swarm.Task, n int) (list []swarm.Task) {
	r.t.Helper()
	r.until(fmt.Sprintf("%d running tasks of web without %s", n, old.ID), func() bool {
		list = r.running("web")
		return len(list) == n && !slices.ContainsFunc(list, func(t swarm.Task) bool { return t.ID == old.ID })
	})
	return list
}

// until waits for something that must come, however slow the day.
func (r *ring) until(what string, ok func() bool) {
	r.t.Helper()
	r.within(90*time.Second, what, ok)
}

func (r *ring) within(limit time.Duration, what string, ok func() bool) {
	r.t.Helper()
	for begun := time.Now(); !ok(); time.Sleep(20 * time.Millisecond) {
		if slowday.Over(begun, limit) {
			r.t.Fatalf("not within %v: %s", limit, what)
		}
	}
}

// jailOf is the name of a task's jail, which is its container's ID or begins
// with it.
func (r *ring) jailOf(task swarm.Task) string {
	r.t.Helper()
	id := task.Status.ContainerStatus.ContainerID
	for _, j := range r.World().Jails {
		if strings.HasPrefix(j.Name, id) {
			return j.Name
		}
	}
	r.t.Fatalf("no jail of task %s, container %s, among %+v", task.ID, id, r.World().Jails)
	return ""
}

// addrOf is a task's address.
func (r *ring) addrOf(task swarm.Task) string {
	r.t.Helper()
	var c struct {
		NetworkSettings struct {
			Networks map[string]struct{ IPAddress string }
		}
	}
	r.ask("GET", "/containers/"+task.Status.ContainerStatus.ContainerID+"/json", nil, &c)
	for name, n := range c.NetworkSettings.Networks {
		if name != "ingress" { // this node's own redirects go to the first
			return n.IPAddress
		}
	}
	r.t.Fatalf("task %s has no address", task.ID)
	return ""
}

// addrsOf are those of several, in order.
func (r *ring) addrsOf(tasks []swarm.Task) (addrs []string) {
	r.t.Helper()
	for _, t := range tasks {
		addrs = append(addrs, r.addrOf(t))
	}
	sortAddrs(addrs)
	return addrs
}

func sortAddrs(addrs []string) {
	slices.SortFunc(addrs, func(a, b string) int { return netip.MustParseAddr(a).Compare(netip.MustParseAddr(b)) })
}

// get asks an HTTP server from within the namespace.
func (r *ring) get(url string) (string, error) {
	client := http.Client{Timeout: 10 * time.Second, Transport: &http.Transport{
		DisableKeepAlives: true,
		DialContext:       func(_ context.Context, network, addr string) (net.Conn, error) { return r.ns.Dial(network, addr) },
	}}
	resp, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return strings.TrimSpace(string(data)), err
}
