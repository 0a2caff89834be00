// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/vishvananda/netns"
)

const netnsDir = "/run/netns/"

// site is several machines on one wire: each a network namespace with a satld
// of its own, and one for clients.
type site struct {
	t      *testing.T
	prefix string // of the namespaces' names
	nodes  []*daemon
}

// newSite makes n nodes, each a fresh cluster of one. Node i has the address
// 10.77.0.(i+1) on the wire, and the client 10.77.0.100.
func newSite(t *testing.T, n int, extra ...string) *site {
	t.Helper()
	need(t)
	s := &site{t: t, prefix: fmt.Sprintf("se%x%d", os.Getpid(), daemons.Add(1))}
	s.ip("netns", "add", s.hub())
	t.Cleanup(func() { s.ip("netns", "del", s.hub()) })
	s.in(s.hub(), "link", "add", "wire", "type", "bridge")
	s.in(s.hub(), "link", "set", "wire", "up")
	s.plug(s.client(), "10.77.0.100")
	archive, err := appImage()
	if err != nil {
		t.Fatal(err)
	}
	for i := range n {
		s.plug(s.host(i), s.addr(i))
		d := &daemon{t: t, n: int(daemons.Add(1)), network: "satl0", subnet: "10.88", netns: s.host(i), extra: append([]string{
			"--listen-addr", "0.0.0.0:2377"}, extra...)}
		if d.dir, err = os.MkdirTemp("", "satl-e2e-"); err != nil {
			t.Fatal(err)
		}
		d.state, d.sock = filepath.Join(d.dir, "state"), filepath.Join(d.dir, "satl.sock")
		if d.log, err = os.Create(filepath.Join(d.dir, "satld.log")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(d.destroy)
		d.start()
		d.docker("load", "-q", "-i", archive)
		s.nodes = append(s.nodes, d)
	}
	return s
}

func (s *site) hub() string       { return s.prefix + "h" }
func (s *site) client() string    { return s.prefix + "c" }
func (s *site) host(i int) string { return fmt.Sprintf("%sn%d", s.prefix, i) }
func (s *site) addr(i int) string { return fmt.Sprintf("10.77.0.%d", i+1) }

// plug makes a namespace with one interface on the wire.
func (s *site) plug(ns, addr string) {
	s.t.Helper()
	s.ip("netns", "add", ns)
	s.t.Cleanup(func() { s.ip("netns", "del", ns) })
	s.in(s.hub(), "link", "add", ns, "type", "veth", "peer", "name", "eth0", "netns", ns)
	s.in(s.hub(), "link", "set", ns, "master", "wire", "up")
	s.in(ns, "link", "set", "lo", "up")
	s.in(ns, "link", "set", "eth0", "up")
	s.in(ns, "addr", "add", addr+"/24", "dev", "eth0")
	s.in(ns, "route", "add", "default", "via", "10.77.0.254")
}

func (s *site) ip(args ...string) {
	s.t.Helper()
	if out, err := exec.Command("ip", args...).CombinedOutput(); err != nil {
		s.t.Fatalf("ip %s: %v: %s", strings.Join(args, " "), err, out)
	}
}

func (s *site) in(ns string, args ...string) {
	s.t.Helper()
	s.ip(append([]string{"-n", ns}, args...)...)
}

// cut takes a node off the wire, or puts it back.
func (s *site) cut(i int, off bool) {
	s.t.Helper()
	state := "up"
	if off {
		state = "down"
	}
	s.in(s.hub(), "link", "set", s.host(i), state)
}

// join makes a node a member of node 0's cluster.
func (s *site) join(i int, role string) {
	s.t.Helper()
	token := s.nodes[0].docker("swarm", "join-token", "-q", role)
	s.nodes[i].docker("swarm", "join", "--token", token, s.addr(0)+":2377")
}

// dialIn connects from within a namespace.
func dialIn(ctx context.Context, ns, network, addr string) (c net.Conn, err error) {
	type result struct {
		c   net.Conn
		err error
	}
	done := make(chan result, 1)
	go func() {
		// The thread is not given back: it ends with the goroutine, so that
		// nothing else ever runs in the namespace.
		runtime.LockOSThread()
		h, err := netns.GetFromPath(netnsDir + ns)
		if err == nil {
			err = errors.Join(netns.Set(h), h.Close())
		}
		if err != nil {
			done <- result{err: err}
			return
		}
		var d net.Dialer
		c, err := d.DialContext(ctx, network, addr)
		done <- result{c, err}
	}()
	r := <-done
	return r.c, r.err
}

// fetch GETs a page from the client's place, with a connection of its own.
func (s *site) fetch(addr string) (string, error) {
	client := http.Client{Timeout: 3 * time.Second, Transport: &http.Transport{DisableKeepAlives: true,
		DialContext: func(ctx context.Context, network, addr string) (net.Conn, error) {
			return dialIn(ctx, s.client(), network, addr)
		}}}
	resp, err := client.Get("http://" + addr + "/")
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	data := make([]byte, 256)
	n, _ := resp.Body.Read(data)
	if resp.StatusCode != http.StatusOK {
		return "", errors.New(resp.Status)
	}
	return strings.TrimSpace(string(data[:n])), nil
}

// clusterNode is a row of `docker node ls`.
type clusterNode struct {
	ID, Hostname, Status, Availability, ManagerStatus string
	Self                                              bool
}

func (d *daemon) clusterNodes() (out []clusterNode) {
	d.t.Helper()
	for line := range strings.Lines(d.docker("node", "ls", "--format", "{{json .}}")) {
		var n clusterNode
		if err := json.Unmarshal([]byte(line), &n); err != nil {
			d.t.Fatalf("%v: %s", err, line)
		}
		out = append(out, n)
	}
	return out
}
