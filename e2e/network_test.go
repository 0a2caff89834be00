// SPDX-License-Identifier: BSD-2-Clause

package e2e

import (
	"net"
	"strconv"
	"strings"
	"testing"
	"time"
)

// Networks are isolated, names are known within a network only, and a task in
// two networks is known in both.
func TestNetworksAreIsolated(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	d.docker("network", "create", "-d", "overlay", "red")
	d.docker("network", "create", "-d", "overlay", "blue")
	d.docker("service", "create", "-q", "--name", "server", "--network", "red", "--health-cmd", "/app -probe http://127.0.0.1/health", "--health-interval", "1s", "app:1")
	d.docker("service", "create", "-q", "--name", "friend", "--network", "red", "--network", "blue", "app:1", "sleep", "1000")
	d.docker("service", "create", "-q", "--name", "stranger", "--network", "blue", "app:1", "sleep", "1000")
	addr, ok := path(d.inspect("", "server"), "NetworkSettings", "Networks", "red", "IPAddress").(string)
	if !ok || addr == "" {
		t.Fatalf("server has no address in red")
	}
	if out, stderr, err := d.try("exec", "friend.1", "/app", "-probe", "http://server/health"); err != nil {
		t.Errorf("by name in a shared network: %v %s%s", err, out, stderr)
	}
	if out, _, err := d.try("exec", "stranger.1", "timeout", "3", "/app", "-probe", "http://"+addr+"/health"); err == nil {
		t.Errorf("another network reaches the server: %s", out)
	}
	if out, _, _ := d.try("exec", "stranger.1", "nslookup", "server"); strings.Contains(out, addr) {
		t.Errorf("another network resolves the server:\n%s", out)
	}
	d.refused("in use", "network", "rm", "red")
	d.docker("service", "rm", "server", "friend", "stranger")
	eventually(t, 20*time.Second, "networks removed", func() bool {
		_, _, err := d.try("network", "rm", "red", "blue")
		return err == nil || !strings.Contains(d.docker("network", "ls"), "red")
	})
}

// UDP through a published port follows the members at once (cases/pool.md, pool-1).
func TestUDPFollowsTheMembers(t *testing.T) {
	t.Parallel()
	d := loaded(t)
	port := d.port(0)
	d.docker("service", "create", "-q", "--name", "echo", "--replicas", "2", "--restart-condition", "none", "-p", strconv.Itoa(port)+":53/udp",
		"--health-cmd", "test ! -e /tmp/bad", "--health-interval", "1s", "--health-retries", "1", "--health-timeout", "10s", "app:1", "/app", "-udp", ":53")
	conn, err := net.Dial("udp", "127.0.0.1:"+strconv.Itoa(port))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	ask := func() string {
		if _, err := conn.Write([]byte("who")); err != nil {
			return ""
		}
		buf := make([]byte, 100)
		if err := conn.SetReadDeadline(time.Now().Add(500 * time.Millisecond)); err != nil {
			t.Fatal(err)
		}
		n, err := conn.Read(buf)
		if err != nil {
			return ""
		}
		return string(buf[:n])
	}
	var first string
	eventually(t, 5*time.Second, "an answer", func() bool { first = ask(); return first != "" })
	d.docker("exec", first, "touch", "/tmp/bad")
	eventually(t, 6*time.Second, "answers from the other member", func() bool {
		now := ask()
		return now != "" && now != first
	})
	for range 10 {
		if ask() == first {
			t.Fatal("the removed member answers again")
		}
	}
}
