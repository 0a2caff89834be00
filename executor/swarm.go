// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"maps"
	"runtime"
	"slices"

	"github.com/moby/swarmkit/v2/api"

	"satld/platform"
)

// Describe reports this node to the cluster. It implements exec.Executor.
func (n *Node) Describe(context.Context) (*api.NodeDescription, error) {
	return n.description(), nil
}

func (n *Node) description() *api.NodeDescription {
	d := &api.NodeDescription{
		Hostname: n.cfg.Hostname,
		Platform: &api.Platform{Architecture: Machine(), OS: platform.OS},
		Resources: &api.Resources{
			NanoCPUs:    int64(runtime.NumCPU()) * 1e9,
			MemoryBytes: totalMemory(),
		},
		Engine: &api.EngineDescription{EngineVersion: n.cfg.Version, Labels: maps.Clone(n.cfg.Labels)},
	}
	// What the scheduler's plugin filter looks for; all of it is built in.
	// In a fixed order: the agent compares descriptions, and begins a new
	// session, with writes to the store, whenever one differs from the last.
	for _, kind := range slices.Sorted(maps.Keys(Plugins)) {
		for _, name := range Plugins[kind] {
			d.Engine.Plugins = append(d.Engine.Plugins, api.PluginDescription{Type: kind, Name: name})
		}
	}
	return d
}

// Plugins are the built-in drivers by Docker's kinds.
var Plugins = map[string][]string{
	"Log":     {"json-file", "local", "none"},
	"Network": {"bridge", "host", "null", "overlay"},
	"Volume":  {"local"},
}

// Machine is this machine's hardware name as uname(1) gives it, which is what
// Docker clients expect of a platform.
func Machine() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	}
	return runtime.GOARCH
}

// SetNetworkBootstrapKeys is for encrypted overlays, which there are none of.
func (n *Node) SetNetworkBootstrapKeys([]*api.EncryptionKey) error { return nil }
