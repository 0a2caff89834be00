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
	secrets toldSecrets
	configs toldConfigs
	told    bool          // a manager has said once what there is
	changed chan struct{} // closed and renewed at each change
}

func newDependencies() *dependencies {
	d := &dependencies{changed: make(chan struct{})}
	kept, files := secrets.NewManager(), configs.NewManager()
	d.secrets = toldSecrets{kept, &told[api.Secret]{d: d, all: kept}}
	d.configs = toldConfigs{files, &told[api.Config]{d: d, all: files}}
	return d
}

// tell wakes those who wait for one of them; the caller holds the lock.
func (d *dependencies) tell() {
	d.told = true
	close(d.changed)
	d.changed = make(chan struct{})
}

// Secrets is where SwarmKit's agent puts secrets. It implements exec.SecretsProvider.
func (n *Node) Secrets() exec.SecretsManager { return n.dependencies.secrets }

// Configs is where SwarmKit's agent puts configs. It implements exec.ConfigsProvider.
func (n *Node) Configs() exec.ConfigsManager { return n.dependencies.configs }

type toldSecrets struct {
	exec.SecretGetter
	*told[api.Secret]
}

type toldConfigs struct {
	exec.ConfigGetter
	*told[api.Config]
}

// told is told of secrets, or of configs, as the agent does: Reset and Add, when
// a manager says all that there is, as it does with each new session; Remove and
// Add otherwise, Add of nothing too. Between the two of them a task that starts
// must not find its own gone.
type told[T any] struct {
	d   *dependencies
	all interface {
		Add(more ...T)
		Remove(ids []string)
		Reset()
	}
	anew bool // what comes next is all there is
}

func (t *told[T]) Reset() {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	t.anew = true
}

func (t *told[T]) Add(more ...T) {
	t.d.mu.Lock()
	defer t.d.mu.Unlock()
	if t.anew {
		t.all.Reset()
	}
	t.anew = false
	t.all.Add(more...)
	t.d.tell()
}

func (t *told[T]) Remove(ids []string) { t.all.Remove(ids) }

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
