// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"sync"

	"github.com/moby/swarmkit/v2/agent/configs"
	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/agent/secrets"
	"github.com/moby/swarmkit/v2/api"
)

// dependencies are the secrets and configs that the cluster gave this node for
// its tasks. They are in memory alone: after a start there are none until a
// manager was heard from.
type dependencies struct {
	secrets exec.SecretsManager
	configs exec.ConfigsManager

	mu      sync.Mutex
	told    bool          // a manager has said once what there is
	changed chan struct{} // closed and renewed at each change
}

func newDependencies() *dependencies {
	return &dependencies{secrets: secrets.NewManager(), configs: configs.NewManager(), changed: make(chan struct{})}
}

// news tells whether a manager was heard from, and gives a channel that the
// next change closes.
func (d *dependencies) news() (changed <-chan struct{}, told bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.changed, d.told
}

func (d *dependencies) tell() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.told = true
	close(d.changed)
	d.changed = make(chan struct{})
}

// Secrets is where SwarmKit's agent puts secrets. It implements exec.SecretsProvider.
func (n *Node) Secrets() exec.SecretsManager {
	return &toldSecrets{SecretsManager: n.dependencies.secrets, dependencies: n.dependencies}
}

// Configs is where SwarmKit's agent puts configs. It implements exec.ConfigsProvider.
func (n *Node) Configs() exec.ConfigsManager {
	return &toldConfigs{ConfigsManager: n.dependencies.configs, dependencies: n.dependencies}
}

// toldSecrets wakes those who wait for a secret. The agent adds, if only
// nothing, whenever it is told anything, and after it has removed what went.
type toldSecrets struct {
	exec.SecretsManager
	dependencies *dependencies
}

func (s *toldSecrets) Add(more ...api.Secret) {
	s.SecretsManager.Add(more...)
	s.dependencies.tell()
}

type toldConfigs struct {
	exec.ConfigsManager
	dependencies *dependencies
}

func (c *toldConfigs) Add(more ...api.Config) {
	c.ConfigsManager.Add(more...)
	c.dependencies.tell()
}

// taskDependencies are a task's own secrets and configs and no others. It
// implements exec.DependencyGetter.
type taskDependencies struct {
	secrets exec.SecretGetter
	configs exec.ConfigGetter
}

func (d *dependencies) of(t *api.Task) *taskDependencies {
	return &taskDependencies{secrets: secrets.Restrict(d.secrets, t), configs: configs.Restrict(d.configs, t)}
}

func (t *taskDependencies) Secrets() exec.SecretGetter { return t.secrets }
func (t *taskDependencies) Configs() exec.ConfigGetter { return t.configs }
func (t *taskDependencies) Volumes() exec.VolumeGetter { return nil }

var (
	_ exec.SecretsProvider  = (*Node)(nil)
	_ exec.ConfigsProvider  = (*Node)(nil)
	_ exec.DependencyGetter = (*taskDependencies)(nil)
)
