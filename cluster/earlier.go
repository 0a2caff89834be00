// SPDX-License-Identifier: BSD-2-Clause

package cluster

import (
	"errors"
	"os"
	"path/filepath"

	"github.com/moby/swarmkit/v2/agent"
	"github.com/moby/swarmkit/v2/api"
	bolt "go.etcd.io/bbolt"
)

// tasksFile is the agent's own record of its tasks.
func tasksFile(stateDir string) string { return filepath.Join(stateDir, "worker", "tasks.db") }

// usedBefore tells whether the node in stateDir was part of a cluster: it has
// what is made only after the cluster's store was written for the first time.
func usedBefore(stateDir string) (bool, error) {
	for _, pattern := range []string{
		tasksFile(stateDir),
		filepath.Join(stateDir, "executor", "*", "container.json"),
	} {
		found, err := filepath.Glob(pattern)
		if err != nil || len(found) > 0 {
			return len(found) > 0, err
		}
	}
	// The root's key is in the directory only until the store has it (seed).
	cert, err := there(filepath.Join(stateDir, "certificates", "swarm-node.crt"))
	if err != nil || !cert {
		return false, err
	}
	key, err := there(filepath.Join(stateDir, "certificates", "swarm-root-ca.key"))
	return err == nil && !key, err
}

func there(path string) (bool, error) {
	_, err := os.Stat(path)
	if errors.Is(err, os.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// mourn logs that the store's directory is gone and which tasks go with it: a
// new cluster does not know them, so its agent stops them.
func (n *member) mourn(dir string) {
	n.log.Error("the cluster's store is gone though this node was part of a cluster: a new cluster without services begins, "+
		"and this node's tasks of the earlier one are stopped; to go back, stop the daemon and put the state directory back from a copy",
		"dir", dir)
	err := n.tasks.View(func(tx *bolt.Tx) error {
		return agent.WalkTasks(tx, func(t *api.Task) error {
			n.log.Error("the task's cluster is gone: it is stopped", "task_id", t.ID, "service", t.ServiceAnnotations.Name)
			return nil
		})
	})
	if err != nil {
		n.log.Error("the tasks of the earlier cluster could not be read", "error", err)
	}
}
