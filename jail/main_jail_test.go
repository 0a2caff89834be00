// SPDX-License-Identifier: BSD-2-Clause

//go:build freebsdhost || fakefreebsd

package jail

import (
	"context"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

func cleanMain() { cleanRoot() }

func needRuntime(t testing.TB) { needJails(t) }

func testConfig(state string) Config {
	return Config{StateDir: state, ShimArgs: []string{"test-shim"}, Logger: slog.New(slog.NewTextHandler(io.Discard, nil))}
}

// jails is the host of the node's Manager.
func (n *node) jails() *jails { return n.host.(*jails) }

// spec is a container that runs a shell script. Its root is where package
// image has it.
func (n *node) spec(script string) Spec {
	n.t.Helper()
	id := newID()
	n.ids = append(n.ids, id)
	root := filepath.Join(n.state, "containers", id, rootName)
	if err := os.MkdirAll(root, 0o755); err != nil {
		n.t.Fatal(err)
	}
	fillRoot(n.t, root)
	return Spec{ID: id, Rootfs: root, Args: []string{"/bin/sh", "-c", script}, Hostname: id[:12]}
}

// processes are the container's as the host sees them, zombies apart.
func (n *node) processes(id string) (names []string, zombies int) {
	n.t.Helper()
	ctx := context.Background()
	all, err := n.jails().tool.prisons(ctx)
	if err != nil {
		n.t.Fatal(err)
	}
	p, ok := find(all, id)
	if !ok {
		return nil, 0
	}
	out, err := n.jails().tool(ctx, processesArgv...)
	if err != nil {
		n.t.Fatal(err)
	}
	for line := range strings.Lines(string(out)) {
		switch f := strings.Fields(line); {
		case f[0] != strconv.Itoa(p.jid):
		case strings.HasPrefix(f[2], "Z"):
			zombies++
		default:
			names = append(names, strings.TrimSpace(line))
		}
	}
	return names, zombies
}

// gone waits until nothing of a deleted container's jail is left.
func (n *node) gone(id string) {
	n.t.Helper()
	eventually(n.t, "the end of jail "+id, func() bool {
		left, err := n.Lingers(context.Background(), id)
		if err != nil {
			n.t.Fatal(err)
		}
		return !left
	})
}

// checkLeftovers fails on a process, jail or mount of this node's.
func (n *node) checkLeftovers() {
	ctx := context.Background()
	eventually(n.t, "the end of all jails", func() bool {
		all, err := n.jails().tool.prisons(ctx)
		if err != nil {
			n.t.Fatal(err)
		}
		for _, id := range n.ids {
			if _, ok := find(all, id); ok {
				return false
			}
		}
		return true
	})
	n.jails().sweepAll(ctx)
	out, err := n.jails().tool(ctx, "mount", "-p")
	if err != nil || strings.Contains(string(out), n.state) {
		n.t.Errorf("a mount is left under %s: %v\n%s", n.state, err, out)
	}
	if records, err := n.jails().records.all(); err != nil || len(records) > 0 {
		n.t.Errorf("records are left: %v, %v", records, err)
	}
	if entries, _ := os.ReadDir(n.driver.stateDir()); len(entries) > 0 {
		n.t.Errorf("states of the runtime are left: %v", entries)
	}
	if out, err := n.jails().tool(ctx, "rctl"); err == nil {
		for _, id := range n.ids {
			if strings.Contains(string(out), id) {
				n.t.Errorf("limits of %s are left", id)
			}
		}
	}
}
