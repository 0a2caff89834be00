// SPDX-License-Identifier: BSD-2-Clause

package api

import (
	"cmp"
	"path"
	"slices"

	"github.com/docker/docker/api/types/swarm"

	"satld/executor"
)

// admitFiles checks where a service wants its secrets and configs. That there
// are such is for the store to tell. They are put in order: clients send them
// in any, and one spec in two orders would replace every task.
func admitFiles(c *swarm.ContainerSpec) error {
	targets := make(map[string]string) // who has a path
	take := func(what, name, target, uid, gid string) error {
		if path.Clean(target) == "/" {
			return errInvalid("malformed file %s reference, invalid target file name provided", what)
		}
		if other, taken := targets[target]; taken {
			return errInvalid("%s references '%s' and '%s' have a conflicting target: '%s'", what, other, name, target)
		}
		targets[target] = name
		for _, id := range []string{uid, gid} {
			if _, err := executor.FileOwner(id); err != nil {
				return errInvalid("invalid owner of %s '%s': %v", what, name, err)
			}
		}
		return nil
	}
	for _, r := range c.Secrets {
		switch {
		case r == nil:
			return errInvalid("malformed secret reference")
		case r.File == nil:
			return errInvalid("malformed secret reference, no target provided")
		case r.File.Name == "":
			return errInvalid("malformed file secret reference, invalid target file name provided")
		}
		if err := take("secret", r.SecretName, executor.SecretPath(r.File.Name), r.File.UID, r.File.GID); err != nil {
			return err
		}
	}
	for _, r := range c.Configs {
		switch {
		case r == nil:
			return errInvalid("malformed config reference")
		case r.Runtime != nil:
			return errNotSupported("configs as credential specs are not supported")
		case r.File == nil:
			return errInvalid("malformed config reference, no target provided")
		case r.File.Name == "":
			return errInvalid("malformed file config reference, invalid target file name provided")
		}
		if err := take("config", r.ConfigName, executor.ConfigPath(r.File.Name), r.File.UID, r.File.GID); err != nil {
			return err
		}
	}
	slices.SortFunc(c.Secrets, func(a, b *swarm.SecretReference) int { return cmp.Compare(a.File.Name, b.File.Name) })
	slices.SortFunc(c.Configs, func(a, b *swarm.ConfigReference) int { return cmp.Compare(a.File.Name, b.File.Name) })
	return nil
}
