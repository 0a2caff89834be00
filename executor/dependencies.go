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
	mu      sync.Mutex // guards what follows, and whoever looks at several of them
	secrets exec.SecretsManager
	configs exec.ConfigsManager
	anew    [2]bool       // of secrets, of configs: what comes next is all there is
	told    bool          // a manager has said once what there is
	changed chan struct{} // closed and renewed at each change
}

func newDependencies() *dependencies {
	return &dependencies{secrets: secrets.NewManager(), configs: configs.NewManager(), changed: make(chan struct{})}
}

// tell wakes those who wait for one of them; the caller holds the lock.
func (d *dependencies) tell() {
	d.told = true
	close(d.changed)
	d.changed = make(chan struct{})
}

// Secrets is where SwarmKit's agent puts secrets. It implements exec.SecretsProvider.
func (n *Node) Secrets() exec.SecretsManager {
	return &toldSecrets{SecretsManager: n.dependencies.secrets, d: n.dependencies}
}

// Configs is where SwarmKit's agent puts configs. It implements exec.ConfigsProvider.
func (n *Node) Configs() exec.ConfigsManager {
	return &toldConfigs{ConfigsManager: n.dependencies.configs, d: n.dependencies}
}

// toldSecrets is told of secrets as the agent does: Reset and Add, when a
// manager says all that there is, as it does with each new session; Remove and
// Add otherwise, Add of nothing too. Between the two of them a task that starts
// must not find its own gone.
type toldSecrets struct {
	exec.SecretsManager
	d *dependencies
}

func (s *toldSecrets) Reset() {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	s.d.anew[0] = true
}

func (s *toldSecrets) Add(more ...api.Secret) {
	s.d.mu.Lock()
	defer s.d.mu.Unlock()
	if s.d.anew[0] {
		s.SecretsManager.Reset()
	}
	s.d.anew[0] = false
	s.SecretsManager.Add(more...)
	s.d.tell()
}

// toldConfigs is the same for configs.
type toldConfigs struct {
	exec.ConfigsManager
	d *dependencies
}

func (c *toldConfigs) Reset() {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	c.d.anew[1] = true
}

func (c *toldConfigs) Add(more ...api.Config) {
	c.d.mu.Lock()
	defer c.d.mu.Unlock()
	if c.d.anew[1] {
		c.ConfigsManager.Reset()
	}
	c.d.anew[1] = false
	c.ConfigsManager.Add(more...)
	c.d.tell()
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
