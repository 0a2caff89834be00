// SPDX-License-Identifier: BSD-2-Clause

package executor

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strconv"
	"time"

	"github.com/moby/swarmkit/v2/agent/exec"
	"github.com/moby/swarmkit/v2/api"
	"github.com/moby/swarmkit/v2/template"

	"satld/jail"
)

// goneAfter is how long a secret or config that a manager does not give is
// waited for: it is given together with the task, or not at all.
const goneAfter = 5 * time.Second

// secretsDir is where a secret is that is given no absolute path, as in Docker.
const secretsDir = "/run/secrets"

// SecretPath and ConfigPath are where a container finds a secret or config
// whose reference has that file name.
func SecretPath(name string) string { return inside(secretsDir, name) }
func ConfigPath(name string) string { return inside("/", name) }

func inside(dir, name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(dir, name)
}

// FileOwner reads an owner or group of a secret's or config's file: a number,
// which "" is 0 of.
func FileOwner(id string) (int, error) {
	if id == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(id, 10, 31)
	if err != nil {
		return 0, fmt.Errorf("%q is no number of a user or group", id)
	}
	return int(n), nil
}

// files are the task's secrets and configs with what is in them. It waits for
// those that have not come yet: a node that has not heard from a manager since
// its start has none.
func (c *controller) files(ctx context.Context) ([]jail.File, error) {
	spec := c.task.Spec.GetContainer()
	if len(spec.Secrets)+len(spec.Configs) == 0 {
		return nil, nil
	}
	d := c.node.dependencies
	given := d.of(c.task)
	var gone <-chan time.Time
	for {
		d.mu.Lock()
		missing, changed, told := missingOf(spec, given), d.changed, d.told
		if missing == "" {
			files, err := taskFiles(spec, template.NewTemplatedDependencyGetter(given, c.task, c.node.description()))
			d.mu.Unlock()
			return files, err
		}
		d.mu.Unlock()
		switch {
		case !told:
			c.log().Info("the task waits for what no manager has given this node yet", "missing", missing)
		case gone == nil:
			timer := time.NewTimer(goneAfter)
			defer timer.Stop()
			gone = timer.C
		}
		select {
		case <-changed:
		case <-gone:
			return nil, fmt.Errorf("%s is gone: the cluster has it no more", missing)
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// taskFiles are the files of a task that all its secrets and configs are there
// for, with their templates expanded.
func taskFiles(spec *api.ContainerSpec, given exec.DependencyGetter) (files []jail.File, err error) {
	for _, r := range spec.Secrets {
		var f jail.File
		s, err := given.Secrets().Get(r.SecretID)
		if err == nil {
			f, err = taskFile(SecretPath, r.GetFile(), s.Spec.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("secret %s: %w", r.SecretName, err)
		}
		files = append(files, f)
	}
	for _, r := range spec.Configs {
		var f jail.File
		s, err := given.Configs().Get(r.ConfigID)
		if err == nil {
			f, err = taskFile(ConfigPath, r.GetFile(), s.Spec.Data)
		}
		if err != nil {
			return nil, fmt.Errorf("config %s: %w", r.ConfigName, err)
		}
		files = append(files, f)
	}
	return files, nil
}

func taskFile(place func(name string) string, f *api.FileTarget, data []byte) (jail.File, error) {
	if f == nil {
		return jail.File{}, errors.New("it is given as no file, which is not supported")
	}
	uid, err := FileOwner(f.UID)
	if err != nil {
		return jail.File{}, err
	}
	gid, err := FileOwner(f.GID)
	if err != nil {
		return jail.File{}, err
	}
	return jail.File{Target: place(f.Name), Data: data, Mode: f.Mode.Perm(), UID: uid, GID: gid}, nil
}

// missingOf names the first secret or config of a task that is not there.
func missingOf(spec *api.ContainerSpec, given *taskDependencies) string {
	for _, r := range spec.Secrets {
		if s, err := given.secrets.Get(r.SecretID); err != nil || s == nil {
			return "secret " + r.SecretName
		}
	}
	for _, r := range spec.Configs {
		if s, err := given.configs.Get(r.ConfigID); err != nil || s == nil {
			return "config " + r.ConfigName
		}
	}
	return ""
}
